// `balance`: layers of one plan.
#pragma once
#include "bounds.hpp"

namespace search {

// `split_rows` of one row, where there is a solution.
inline void split_row(Int total, const std::vector<double>& cost, const std::vector<double>& offset,
                      const std::vector<Int>& upper, Int* items) {
    const std::size_t S = cost.size();
    std::vector<double> rate(S), lead(S), level(S);
    std::vector<char> full(S, 0);
    for (std::size_t s = 0; s < S; ++s) {
        rate[s] = 1.0 / cost[s];
        lead[s] = offset[s] * rate[s];
    }
    for (int round = 0; round < 2; ++round) {
        double open_rate = 0.0, taken = 0.0;
        for (std::size_t s = 0; s < S; ++s) {
            open_rate += full[s] ? 0.0 : rate[s];
            taken += full[s] ? static_cast<double>(upper[s]) : -lead[s];
        }
        const double share = (static_cast<double>(total) - taken) / std::max(open_rate, TINY);
        for (std::size_t s = 0; s < S; ++s) level[s] = share * rate[s] - lead[s];
        for (std::size_t s = 0; s < S; ++s) full[s] = level[s] > static_cast<double>(upper[s]);
    }
    Int missing = total;
    for (std::size_t s = 0; s < S; ++s) {
        // In this order, what is not a number is 0.
        const double below = std::floor(std::min(std::max(0.0, level[s]), static_cast<double>(upper[s])));
        items[s] = std::max<Int>(static_cast<Int>(below), 1);
        missing -= items[s];
    }
    for (; missing > 0; --missing) {
        std::size_t cheapest = 0;
        double least = INF;
        for (std::size_t s = 0; s < S; ++s) {
            const double next = items[s] < upper[s] ? offset[s] + static_cast<double>(items[s] + 1) * cost[s] : INF;
            if (next < least) least = next, cheapest = s;
        }
        ++items[cheapest];
    }
    for (; missing < 0; ++missing) {
        std::size_t dearest = S;
        double largest = -INF;
        for (std::size_t s = 0; s < S; ++s) {
            const double own = offset[s] + static_cast<double>(items[s]) * cost[s];
            if (items[s] > 1 && (dearest == S || own > largest)) largest = own, dearest = s;
        }
        --items[dearest];
    }
}

}  // namespace search
