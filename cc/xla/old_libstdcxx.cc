// TensorFlow's headers call this constructor, which libstdc++ exports only since GCC 9. With an
// instance of our own _ops.so also loads with the libstdc++ of GCC 7, as TensorFlow itself does.
#include <sstream>

template std::stringstream::basic_stringstream();
