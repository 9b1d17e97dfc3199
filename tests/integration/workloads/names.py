"""The ways of truth.py, for tests that must not import TensorFlow to collect."""

STEPS = 16
"""Training steps (or evaluated batches) that each way does."""

WAYS = {
    "eager_for": 17,
    "eager_for_function": 17,
    "eager_next_with_break": 16,
    "eager_new_dataset_each_epoch": 20,
    "get_next_in_function": 17,
    "next_in_function_captured": 16,
    "get_next_as_optional_in_function": 17,
    "for_dataset_in_function": 17,
    "for_iterator_in_function": 17,
    "range_in_function": 16,
    "unrolled_in_function": 16,
    "distributed_in_function": 17,
    "distributed_eager": 17,
    "for_distributed_in_function": 17,
    "generator": 16,
    "data_service": 17,
    "explicit_step": 16,
    "train_and_validate": 18,
    "keras_fit": 16,
    "keras_fit_unknown_size": 17,
    "keras_fit_steps_per_execution": 4,
    "keras_fit_with_validation": 16,
    "keras_fit_distributed": 16,
    "keras_fit_eagerly": 16,
    "keras_evaluate": 16,
    "keras_predict": 16,
    "keras_train_on_batch": 17,
}
"""How many waits block a step: the elements, and each end of the data that is found by asking for it. With five steps
per execution TensorFlow fetches while it computes, so only the first wait of each execution blocks."""

EVALUATES = ("keras_evaluate", "keras_predict")
