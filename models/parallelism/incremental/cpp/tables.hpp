// `tables`: `CostTables.packed`.
#pragma once
#include "arguments.hpp"

namespace search {

struct Tables {
    Array<Int> whole, num_micro_batches, micro_batch;
    Array<double> real, degrees, layer_s, forward_s, backward_s, communication_s, parts, kept, working;
    Array<double> compute, tensor, parameters, boundaries;

    explicit Tables(PyObject* packed) {
        unpack(packed, "y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*", &whole.view, &num_micro_batches.view, &micro_batch.view,
               &real.view, &degrees.view, &layer_s.view, &forward_s.view, &backward_s.view, &communication_s.view,
               &parts.view, &kept.view, &working.view, &compute.view, &tensor.view, &parameters.view, &boundaries.view);
        check(whole.size() == 6 && real.size() == 10 && parts.size() == 12, "tables: facts of the job");
        check(T() > 0 && degrees.within(1.0, 1e6), "tables: degrees");
        check(kept.size() == 4 * T() && working.size() == T(), "tables: memory");
        check(num_micro_batches.size() == B() && num_micro_batches.within(1, INT32_MAX), "tables: micro-batches");
        const Int size = layer_s.size();
        check(size % T() == 0 && micro_batch.within(1, size / T() - 1), "tables: local batches");
        for (const Array<double>* times : {&forward_s, &backward_s, &communication_s})
            check(times->size() == size, "tables: times");
        for (const Array<double>* sums : {&compute, &tensor, &parameters})
            check(sums->size() == num_layers() + 1, "tables: layers");
        check(num_layers() > 0 && boundaries.size() == num_layers(), "tables: boundaries");
    }
    Int num_layers() const { return whole[0]; }
    Int zero() const { return whole[1]; }
    Int own_micro_batch() const { return whole[2]; }
    bool sends() const { return whole[3]; }
    bool splits_sends() const { return whole[4]; }
    bool overlaps_sends() const { return whole[5]; }
    double usable_bytes() const { return real[0]; }
    double optimizer_s() const { return real[1]; }
    double overlap() const { return real[2]; }
    double again() const { return real[3]; }
    double parameter_bytes() const { return real[4]; }
    double gradient_bytes() const { return real[5]; }
    double optimizer_bytes() const { return real[6]; }
    double first_layers() const { return real[7]; }
    double last_layers() const { return real[8]; }
    double tied() const { return real[9]; }
    Int B() const { return micro_batch.size(); }
    Int T() const { return degrees.size(); }
    Int tp(Int degree) const { return static_cast<Int>(degrees[degree]); }
    // Of local batches from 0 on.
    Int at(Int degree, Int batch) const { return degree * (layer_s.size() / T()) + batch; }
    // Shares of `part_shares`: 0 the plain layer, 1 and 2 the ends, 3 the copy of tied embeddings.
    double part_compute(int part) const { return parts[part]; }
    double part_tensor(int part) const { return parts[4 + part]; }
    double part_parameters(int part) const { return parts[8 + part]; }
    double kept_bytes(int part, Int degree) const { return kept[part * T() + degree]; }
};

}  // namespace search
