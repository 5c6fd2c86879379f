// The instances of a chip's blocks, and how values go from one to another. Included behind the blocks' headers.
// Values of up to 64 bits are numbers, wider ones arrays of 32-bit words.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

FILE* record_file = nullptr;

template <class T> inline bool put(T& to, const T& from) {
  if (to == from) return false;
  to = from;
  return true;
}
template <class T, class F> inline bool put(T& to, const F& from) { return put(to, static_cast<T>(from)); }
template <std::size_t N> inline bool put(VlWide<N>& to, const VlWide<N>& from) {
  if (!std::memcmp(&to, &from, sizeof to)) return false;
  to = from;
  return true;
}
template <class T, class F> inline void set(T& to, const F& from) { to = static_cast<T>(from); }
template <class T> inline QData bits(const T& from, int first, int width) {
  return (static_cast<QData>(from) >> first) & (~0ull >> (64 - width));
}
template <std::size_t N> inline QData bits(const VlWide<N>& from, int first, int width) {
  QData found = 0;
  for (int bit = 0; bit < width; ++bit) {
    found |= static_cast<QData>(from[(first + bit) / 32] >> ((first + bit) % 32) & 1) << bit;
  }
  return found;
}

template <std::size_t N> inline void place(VlWide<N>& to, int first, int width, QData from) {
  for (int bit = 0; bit < width; ++bit) {
    to[(first + bit) / 32] |= static_cast<EData>(from >> bit & 1) << (first + bit) % 32;
  }
}

// Gives the pages of a memory of zeros back to the system, whose pages are zeros when they are touched next: a process
// has those alone that a program uses.
template <class Memory> inline void give_back(Memory& memory) {
#ifdef __linux__
  const std::uintptr_t page = sysconf(_SC_PAGESIZE), begin = reinterpret_cast<std::uintptr_t>(&memory[0]);
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + sizeof memory) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#endif
}

// One instance of a block. `changed`: an input has, since it was evaluated; `ran`: it was evaluated in the last cycle;
// `followed`: the same of an input that outputs follow in the same cycle; `due`: it was evaluated for these, and the
// cycle is still to be done.
// Ports are those of the model's inside: the outside adds locks for what is not used here. All that a block does follows
// a change of one of few inputs (`blocks.source`), and who carries out a cycle knows which: so these never change, and
// what Verilator would have found out (`detect`) is put in its place for `evaluate`.
template <class Model, class Root, void (*detect)(Root*), void (*evaluate)(Root*)> class Unit {
  struct Triggers {
    QData words[sizeof(Root::__VnbaTriggered) / sizeof(QData)] = {};
    Triggers& operator|=(const Triggers& others) {
      for (std::size_t word = 0; word < std::size(words); ++word) words[word] |= others.words[word];
      return *this;
    }
  };
  using Clocks = decltype(Root::clocks);

  Model* model;
  // What is triggered by changes of inputs, of `clocks` by each byte that says which of its bits change.
  static inline Triggers taking, looking, ticking, waking, clocking[sizeof(Clocks)][256];

 public:
  Root* m;
  bool changed = true, followed = true, ran = true, due = false;
  void make(VerilatedContext* context, const char* name) {
    model = new Model{context, name};
    m = model->rootp;
  }
  void first() {
    model->eval();
    taking = found(m->take);
    if constexpr (requires { m->look; }) looking = found(m->look);
    if constexpr (requires { m->tick; }) {
      ticking = found(m->tick);
      waking = found(m->wake);
    }
    for (unsigned clock = 0; clock < m->count; ++clock) {
      const Triggers one = found(m->clocks, static_cast<Clocks>(Clocks{1} << clock));
      for (unsigned bits = 0; bits < 256; ++bits) {
        if (bits >> clock % 8 & 1) clocking[clock / 8][bits] |= one;
      }
    }
  }
  // Evaluates it after something but its inputs has changed.
  void whole() {
    put_in_place({});
    model->eval();
  }
  bool fresh() const { return ran | due; }
  // Takes the inputs, if outputs follow one that has changed.
  void settle() {
    if (!followed) return;
    followed = false;
    changed = true;
    take();
    due = true;
  }
  // A cycle, unless nothing would change.
  void step() {
    QData open = m->awake;
    ran = changed | due | (open != 0);
    if (!ran) return;
    due = false;
    if (changed) {
      take();
      open = m->awake;
    }
    if (look()) open = m->awake;
    if (open) pass(clocked(open));
  }
  // The same for a block that is told the number of the cycle; that of the next one is `next`.
  void step(IData next) {
    const bool slept = !ran;
    QData open = m->awake;
    ran = changed | due | (open != 0);
    if (!ran) return;
    due = false;
    if (changed | slept) {
      take(slept ? waking : Triggers{});
      open = m->awake;
    }
    if (look()) open = m->awake;
    m->p_now = next;
    Triggers all = clocked(open);
    pass(all |= ticking);
  }

 private:
  template <class Input> Triggers found(Input& input, Input bits = 1) {
    Triggers all;
    input ^= bits;
    detect(m);
    for (std::size_t word = 0; word < std::size(all.words); ++word) all.words[word] = m->__VactTriggered[word];
    return all;
  }
  static Triggers clocked(QData open) {
    Triggers all = clocking[0][open & 255];
    for (std::size_t byte = 1; byte < sizeof(Clocks); ++byte) all |= clocking[byte][open >> 8 * byte & 255];
    return all;
  }
  void put_in_place(const Triggers& all) {
    for (std::size_t word = 0; word < std::size(all.words); ++word) m->__VnbaTriggered[word] = all.words[word];
  }
  void pass(const Triggers& all) {
    put_in_place(all);
    evaluate(m);
  }
  // Takes the inputs, if one has changed, and what else is triggered.
  void take(Triggers all = {}) {
    if (changed) all |= taking;
    changed = false;
    pass(all);
  }
  bool look() {
    if constexpr (requires { m->look; }) {
      if (m->looks) {
        pass(looking);
        return true;
      }
    }
    return false;
  }
};

// A record of the log: 32 bits that say which memory and where, then the word.
template <class Word> inline void note(IData place, const Word& word) {
  unsigned char record[sizeof place + (sizeof word + 3) / 4 * 4] = {};
  std::memcpy(record, &place, sizeof place);
  std::memcpy(record + sizeof place, &word, sizeof word);
  std::fwrite(record, sizeof record, 1, record_file);
}

struct Chip;
using Action = void (*)(Chip&);

// What is to be done for an instance in a cycle, and about how much that is.
struct Work {
  int weight;
  Action pull, settle, pull_late, step;
};

}  // namespace
