// A cycle, by one thread or by several: between steps that read others' outputs and such that change them all threads
// wait for each other. Included behind `Chip` and its `all_work`, of which the first is the host's: it numbers the cycles.
#pragma once

namespace {

class Threads {
  std::vector<std::vector<Work>> duties;
  std::vector<std::thread> others;
  std::atomic<unsigned> runs{0}, arrived{0}, phase{0};
  bool late = false, ended = false;
  int left = 0;

  void meet() {
    const unsigned now = phase.load(std::memory_order_acquire);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == duties.size()) {
      arrived.store(0, std::memory_order_relaxed);
      phase.store(now + 1, std::memory_order_release);
      return;
    }
    for (unsigned looks = 0; phase.load(std::memory_order_acquire) == now; ++looks) {
      if (looks > 10000) std::this_thread::yield();  // fewer processors than threads
    }
  }

  void work(const std::vector<Work>& duty, bool first) {
    Chip& one = chip();
    do {
      for (const Work& some : duty) some.pull(one);
      if (late) {
        for (const Work& some : duty) if (some.settle) some.settle(one);
        meet();
        for (const Work& some : duty) if (some.pull_late) some.pull_late(one);
      }
      meet();
      if (first) {
        if (record_file) one.observe();
        all_work[0].step(one);
        ended = --left <= 0 || one.irq();
      }
      meet();
      for (const Work& some : duty) if (some.step != all_work[0].step) some.step(one);
      meet();
    } while (!ended);
  }

 public:
  explicit Threads(unsigned count) : duties(count) {
    std::vector<Work> all(std::begin(all_work), std::end(all_work));
    std::vector<int> loads(count);
    const auto take = [&](const Work& some, std::size_t by) {
      duties[by].push_back(some);
      loads[by] += some.weight;
    };
    take(all[0], 0);  // who runs the host sees when a run ends
    all.erase(all.begin());
    std::stable_sort(all.begin(), all.end(), [](auto& one, auto& other) { return one.weight > other.weight; });
    for (const Work& some : all) take(some, std::min_element(loads.begin(), loads.end()) - loads.begin());
    for (const Work& some : all_work) late |= some.settle != nullptr;
    auto* context = Verilated::threadContextp();
    for (unsigned number = 1; number < count; ++number) {
      others.emplace_back([this, number, context] {
        Verilated::threadContextp(context);
        for (unsigned seen = 0;; seen = runs.load()) {
          runs.wait(seen);
          work(duties[number], false);
        }
      });
      others.back().detach();
    }
  }

  // So many cycles, or until there is an interrupt.
  void run(int cycles) {
    left = cycles;
    ended = false;
    ++runs;
    runs.notify_all();
    work(duties[0], true);
  }
};

void Chip::cycle() {
  for (const Work& some : all_work) some.pull(*this);
  for (const Work& some : all_work) if (some.settle) some.settle(*this);
  for (const Work& some : all_work) if (some.pull_late) some.pull_late(*this);
  if (record_file) observe();
  for (const Work& some : all_work) some.step(*this);
}

Threads* threads() {
  static Threads* some = [] {
    const char* wanted = std::getenv("MESHLOOM_THREADS");
    const int count = wanted ? std::atoi(wanted) : 1;
    return count > 1 ? new Threads(std::min<std::size_t>(count, std::size(all_work))) : nullptr;
  }();
  return some;
}

}  // namespace
