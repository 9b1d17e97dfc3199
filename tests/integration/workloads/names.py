"""The ways of truth.py, for tests that must not import TensorFlow to collect."""

STEPS = 12
"""Training steps (or evaluated batches) that each way does."""

WAYS = {
    "eager_for": 13,
    "eager_for_function": 13,
    "eager_next_with_break": 12,
    "eager_new_dataset_each_epoch": 16,
    "get_next_in_function": 13,
    "next_in_function_captured": 12,
    "get_next_as_optional_in_function": 13,
    "for_dataset_in_function": 13,
    "for_iterator_in_function": 13,
    "range_in_function": 12,
    "unrolled_in_function": 12,
    "distributed_in_function": None,
    "distributed_eager": None,
    "for_distributed_in_function": None,
    "generator": 12,
    "data_service": 12,
    "explicit_step": 12,
    "train_and_validate": 14,
    "keras_fit": 12,
    "keras_fit_unknown_size": 13,
    "keras_fit_steps_per_execution": 3,
    "keras_fit_with_validation": 12,
    "keras_fit_distributed": None,
    "keras_fit_eagerly": 12,
    "keras_evaluate": 12,
    "keras_predict": 12,
    "keras_train_on_batch": 13,
}
"""How many waits block a step: the elements, and each end of the data that is found by asking for it. None where
elements are fetched ahead, so that it depends. With five steps per execution TensorFlow fetches while it computes,
so only the first wait of each execution blocks."""

EVALUATES = ("keras_evaluate", "keras_predict")
