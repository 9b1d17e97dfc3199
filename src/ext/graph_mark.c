/* Everything of TensorFlow's C API that is used here is looked up at run time in the library that the process has
 * already loaded, so nothing of TensorFlow is needed to build, and no version is built against. The declarations
 * below repeat tensorflow/c/{ops,kernels,tf_status,tf_tensor}.h, whose functions are stable by promise. */
#include "graph_mark.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;

#define TF_API(X)                                                                                                 \
    X(TF_Status *, TF_NewStatus, (void))                                                                          \
    X(void, TF_DeleteStatus, (TF_Status *))                                                                       \
    X(int, TF_GetCode, (const TF_Status *))                                                                       \
    X(const char *, TF_Message, (const TF_Status *))                                                              \
    X(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *))                                        \
    X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                              \
    X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                             \
    X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                                \
    X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                                      \
      (TF_OpDefinitionBuilder *, void (*)(TF_ShapeInferenceContext *, TF_Status *)))                              \
    X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                     \
    X(TF_KernelBuilder *, TF_NewKernelBuilder,                                                                    \
      (const char *, const char *, void *(*)(TF_OpKernelConstruction *), void (*)(void *, TF_OpKernelContext *),  \
       void (*)(void *)))                                                                                         \
    X(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder *, const char *))                                      \
    X(void, TF_RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                            \
    X(void, TF_OpKernelConstruction_GetAttrInt64,                                                                 \
      (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *))                                          \
    X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                            \
    X(int, TF_NumInputs, (TF_OpKernelContext *))                                                                  \
    X(void, TF_GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                                  \
    X(void *, TF_TensorData, (const TF_Tensor *))                                                                 \
    X(void, TF_DeleteTensor, (TF_Tensor *))

#define DECLARE(type, name, arguments) static type(*name) arguments;
TF_API(DECLARE)

typedef struct {
    uint16_t phase;
    uint8_t kind;
    uint8_t flags;
    uint32_t key;
    int64_t value;
    int64_t presents; /* inputs that say whether an element came; those behind them are ordinals */
} mark;

static void *create(TF_OpKernelConstruction *construction) {
    static const char *const names[] = {"phase", "kind", "flags", "key", "value", "N"};
    int64_t values[6] = {0};
    TF_Status *status = TF_NewStatus();
    for (int i = 0; i < 6; i++) {
        TF_OpKernelConstruction_GetAttrInt64(construction, names[i], &values[i], status);
        if (TF_GetCode(status) != 0) {
            TF_OpKernelConstruction_Failure(construction, status);
            break;
        }
    }
    TF_DeleteStatus(status);
    mark *self = malloc(sizeof *self);
    if (self != NULL) {
        *self = (mark){(uint16_t)values[0], (uint8_t)values[1],  (uint8_t)values[2],
                       (uint32_t)values[3], values[4], values[5]};
    }
    return self;
}

/* An input that says whether there was an element gives 1 or 0; an ordinal gives itself, as the lower half. */
static int64_t input_value(TF_OpKernelContext *context, const mark *self, int index, TF_Status *status) {
    int64_t value = 0;
    TF_Tensor *tensor = NULL;
    TF_GetInput(context, index, &tensor, status);
    if (TF_GetCode(status) == 0 && tensor != NULL) {
        const void *data = TF_TensorData(tensor);
        value = index < self->presents ? *(const bool *)data : *(const uint32_t *)data;
    }
    if (tensor != NULL) {
        TF_DeleteTensor(tensor);
    }
    return value;
}

/* With inputs ("did this iterator have a value?") the event's value is 1 if any is true, else 0. With the ordinal of a
 * collective it is the attribute's upper half and the ordinal. */
static int64_t value_of(TF_OpKernelContext *context, const mark *self, int inputs) {
    int64_t value = self->presents > 0 ? 0 : self->value;
    TF_Status *status = TF_NewStatus();
    for (int i = 0; i < inputs; i++) {
        value |= input_value(context, self, i, status);
    }
    TF_DeleteStatus(status);
    return value;
}

static void compute(void *kernel, TF_OpKernelContext *context) {
    const mark *self = kernel;
    if (self == NULL || !hps_recording()) {
        return;
    }
    uint64_t t_ns = hps_now_ns();
    int inputs = TF_NumInputs(context);
    hps_emit_at(t_ns, self->phase, self->kind, self->flags, self->key,
                inputs > 0 ? value_of(context, self, inputs) : self->value);
}

static void delete(void *kernel) { free(kernel); }

static void no_shape(TF_ShapeInferenceContext *context, TF_Status *status) {}

static int failed(char *error, size_t size, const char *what, TF_Status *status) {
    snprintf(error, size, "%s: %s", what, TF_Message(status));
    TF_DeleteStatus(status);
    return -1;
}

static int register_op(const char *name, char *error, size_t size) {
    TF_Status *status = TF_NewStatus();
    TF_OpDefinitionBuilder *op = TF_NewOpDefinitionBuilder(name);
    TF_OpDefinitionBuilderAddInput(op, "present: N * bool");
    TF_OpDefinitionBuilderAddInput(op, "ordinal: M * int32");
    TF_OpDefinitionBuilderAddAttr(op, "N: int >= 0");
    TF_OpDefinitionBuilderAddAttr(op, "M: int >= 0");
    TF_OpDefinitionBuilderAddAttr(op, "phase: int");
    TF_OpDefinitionBuilderAddAttr(op, "kind: int");
    TF_OpDefinitionBuilderAddAttr(op, "flags: int");
    TF_OpDefinitionBuilderAddAttr(op, "key: int");
    TF_OpDefinitionBuilderAddAttr(op, "value: int");
    /* Stateful: never merged with its like, never folded away, never skipped. */
    TF_OpDefinitionBuilderSetIsStateful(op, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, no_shape);
    TF_RegisterOpDefinition(op, status);
    if (TF_GetCode(status) != 0) {
        return failed(error, size, "registering the op", status);
    }
    /* For GPU too, with its inputs in host memory: a mark sits beside the op it times, so that no control edge
     * crosses devices. */
    static const char *const devices[] = {"CPU", "GPU"};
    for (int i = 0; i < 2; i++) {
        TF_KernelBuilder *kernel = TF_NewKernelBuilder(name, devices[i], create, compute, delete);
        TF_KernelBuilder_HostMemory(kernel, "present");
        TF_KernelBuilder_HostMemory(kernel, "ordinal");
        TF_RegisterKernelBuilder(name, kernel, status);
        if (TF_GetCode(status) != 0) {
            return failed(error, size, "registering the kernel", status);
        }
    }
    TF_DeleteStatus(status);
    return 0;
}

static int register_once(const char *library, char *error, size_t size) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL) {
        snprintf(error, size, "%s is not loaded", library);
        return -1;
    }
#define LOOK_UP(type, name, arguments)                                                                            \
    *(void **)&name = dlsym(handle, #name);                                                                       \
    if (name == NULL) {                                                                                           \
        snprintf(error, size, "this TensorFlow has no %s", #name);                                                \
        return -1;                                                                                                \
    }
    TF_API(LOOK_UP)

    if (register_op(HPS_MARK_OP, error, size) != 0) {
        return -1;
    }
    return register_op(HPS_FREE_MARK_OP, error, size);
}

int hps_graph_mark_register(const char *library, char *error, size_t error_size) {
    static int outcome = 1;
    static char reason[256];
    if (outcome == 1) {
        outcome = register_once(library, reason, sizeof reason);
    }
    snprintf(error, error_size, "%s", reason);
    return outcome;
}
