// What Python gives, and what it is to hear.
#pragma once
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cstdint>
#include <vector>

namespace search {

using Int = std::int64_t;

// A Python error is set.
struct Failed {};

// Sizes and indices are looked at once, where they come in.
inline void check(bool is_so, const char* what) {
    if (is_so) return;
    PyErr_SetString(PyExc_ValueError, what);
    throw Failed();
}

// As between two calls of NumPy, other threads go on and signals are heeded after some work, here some 0.1 ms of it.
inline void breathe(Int work) {
    static Int since = 0;
    if ((since += work) < 1 << 16) return;
    since = 0;
    PyEval_RestoreThread(PyEval_SaveThread());
    if (PyErr_CheckSignals()) throw Failed();
}

// A contiguous array of the caller's.
template <typename T>
struct Array {
    Py_buffer view{};
    Array() = default;
    Array(const Array&) = delete;
    ~Array() {
        if (view.obj) PyBuffer_Release(&view);
    }
    const T& operator[](Int k) const { return begin()[k]; }
    const T* begin() const { return static_cast<const T*>(view.buf); }
    const T* end() const { return begin() + size(); }
    Int size() const { return view.len / static_cast<Int>(sizeof(T)); }
    bool within(T least, T most) const {
        for (T one : *this)
            if (!(least <= one && one <= most)) return false;
        return true;
    }
};

template <typename... Parts>
void unpack(PyObject* packed, const char* format, Parts*... parts) {
    if (!PyTuple_Check(packed)) PyErr_SetString(PyExc_TypeError, "must be a tuple of arrays");
    if (!PyTuple_Check(packed) || !PyArg_ParseTuple(packed, format, parts...)) throw Failed();
}

struct Object {
    PyObject* it;
    explicit Object(PyObject* made) : it(made) {
        if (!it) throw Failed();
    }
    ~Object() { Py_XDECREF(it); }
    Object(const Object&) = delete;
    PyObject* given_away() {
        PyObject* own = it;
        it = nullptr;
        return own;
    }
};

// For "y#".
template <typename T>
const char* bytes_of(const std::vector<T>& values) {
    return reinterpret_cast<const char*>(values.data());
}
template <typename T>
Py_ssize_t length_of(const std::vector<T>& values) {
    return static_cast<Py_ssize_t>(values.size() * sizeof(T));
}

}  // namespace search
