// The instances of a chip's blocks, and how values go from one to another. Included behind the blocks' headers.
// Values of up to 64 bits are numbers, wider ones arrays of 32-bit words.
#pragma once

#include <algorithm>
#include <atomic>
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

// One instance of a block. `changed`: an input has, since it was evaluated; `ran`: it was evaluated in the last cycle;
// `followed`: the same of an input that outputs follow in the same cycle; `due`: it was evaluated for these, and the
// cycle is still to be done.
// Its ports and its evaluation are taken from the model's inside: the outside adds locks for what is not used here.
template <class Model, class Root, void (*evaluate)(Root*)> class Unit {
  Model* model;

 public:
  Root* m;
  bool changed = true, followed = true, ran = true, due = false;
  void make(VerilatedContext* context, const char* name) {
    model = new Model{context, name};
    m = model->rootp;
  }
  void first() { model->eval(); }
  bool fresh() const { return ran | due; }
  // Takes the inputs, if outputs follow one that has changed.
  void settle() {
    if (!followed) return;
    followed = false;
    changed = true;
    take();
    evaluate(m);
    due = true;
  }
  // A cycle, unless nothing would change.
  void step() {
    ran = changed | due | (m->awake != 0);
    if (!ran) return;
    due = false;
    if (changed) {
      take();
      evaluate(m);
    }
    if (!m->awake) return;
    m->clocks ^= m->awake;
    evaluate(m);
  }
  // The same for a block that is told the number of the cycle; that of the next one is `next`.
  void step(IData next) {
    const bool slept = !ran;
    ran = changed | due | (m->awake != 0);
    if (!ran) return;
    due = false;
    if (changed | slept) {
      take();
      if (slept) m->wake = !m->wake;
      evaluate(m);
    }
    m->p_now = next;
    m->tick = !m->tick;
    m->clocks ^= m->awake;
    evaluate(m);
  }

 private:
  void take() {
    if (!changed) return;
    changed = false;
    m->take = !m->take;
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
