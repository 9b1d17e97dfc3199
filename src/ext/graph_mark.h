/* The graph mark: a TensorFlow op of our own that writes one event to the ring when the graph reaches it. */
#ifndef HPCSAMPLER_GRAPH_MARK_H
#define HPCSAMPLER_GRAPH_MARK_H

#include <stddef.h>

#define HPS_MARK_OP "HpcsamplerMark"
/* The same, for places that must not be run in the order of the program: TensorFlow is told so by this name. */
#define HPS_FREE_MARK_OP "HpcsamplerFreeMark"

/* Register the ops and their kernels through the C API of the TensorFlow that is loaded in this process at `library`.
 * 0, or -1 with the reason in `error`. Once per process: later calls return what the first did. */
int hps_graph_mark_register(const char *library, char *error, size_t error_size);

#endif
