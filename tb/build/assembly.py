"""A chip's simulator assembled from its blocks': the C++ that carries the wires' values between them, cycle by cycle.

Outputs of blocks are functions of registers (`hw.partition`), so in each cycle every block is evaluated once, in any
order, after the outputs of the cycle before have been carried to the inputs. Blocks with outputs that follow inputs in
the same cycle (`late`) are evaluated for these first. A block at rest, whose inputs have not changed, is left out:
nothing in it would change.

The bench's side are the functions of `FUNCTIONS`, which `bench.apart` imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshloom.hw.config import ChipConfig, TileKind
from meshloom.hw.partition import Partition, Piece

from .bench import LOG_OFFSET_BITS, TAPS

#: What the bench calls: result, name, parameters, in SystemVerilog.
FUNCTIONS = (
    ("void", "chip_reset", "input bit value"),
    ("void", "chip_wait", "input int cycles"),
    ("int", "chip_run", "input int cycles"),  # until `irq` is set, at most so many; whether it is
    ("void", "chip_write", "input int address, input int value"),
    ("int", "chip_read", "input int address"),
    ("int", "chip_load", "input int channel, input string path"),  # whether the image is whole
    ("int", "chip_dump", "input int channel, input string path, input int first, input int last"),
    ("int", "chip_log", "input string path"),  # what the cores' units write from here on; an empty path: no longer
    ("int", "chip_protocol", ""),  # whether a DRAM channel has seen a breach of its protocol
)
#: Inputs that change in most cycles and that no block at rest takes notice of.
QUIET = ("now", "links")
#: Ports that a block has besides its module's. With a change of the first it takes its inputs (but for the quiet ones,
#: which it always sees), with one of the second it does a cycle; the third: it is not at rest.
TAKE, TICK, AWAKE = "take", "tick", "awake"
#: The instance of the DRAM model in a block.
MODEL = "model"


def pin(port: str) -> str:
    """The name of a port in C++: not that of a function of the model's, nor one that Verilator writes differently."""
    return f"p_{port.replace('__', '_').replace('$', '_n')}"


@dataclass(frozen=True)
class Following:
    """The `outputs` of an instance that may follow these `inputs` in the same cycle."""

    outputs: frozenset[str]
    inputs: frozenset[str]


@dataclass(frozen=True)
class Assembly:
    """What the text is made of. `config`'s chip is observed."""

    config: ChipConfig
    parts: Partition

    @cached_property
    def drams(self) -> list[str]:
        """The instances that hold DRAM channels, by channel."""
        return [f"tile_{tile}" for tile in self.config.drams]

    @cached_property
    def late(self) -> dict[str, Following]:
        """Outputs that follow inputs in the same cycle, by instance (`hw.tile.Tile`, `hw.noc.router.VcRouter`)."""
        found: dict[str, Following] = {}
        noc, channels = self.config.noc, self.config.noc.data_vcs
        for tile, kind in self.config.tiles.items():
            # a notify for another tile needs a place on the post plane
            outputs, inputs = {"data_in__ready"}, {"post_out__ready"}
            if channels > 1:  # an ejection buffer stands before
                outputs = set[str]()
            elif kind is TileKind.DRAM or noc.arrivals:
                inputs |= {"data_in__payload", "data_in__valid"}
            if self.config.dtt is not None:  # instructions are pushed when no others arrive
                outputs |= {"request_in__ready"}
                inputs |= {"data_in__valid"} if channels == 1 else set()
            if outputs:
                found[f"tile_{tile}"] = Following(frozenset(outputs), frozenset(inputs))
        if channels > 1:  # a router chooses among the channels that have room where its flit goes
            outputs = {f"eject_{tile}__{name}" for tile in self.config.tiles for name in ("valid", "payload")}
            inputs = {
                port
                for (name, port), pieces in self.parts.inputs.items()
                if name == "data_plane" and any(piece.port == "data_in__ready" for piece in pieces)
            }
            found["data_plane"] = Following(frozenset(outputs), frozenset(inputs))
        return found

    def text(self) -> str:
        """The C++ source."""
        blocks = "\n".join(
            f'#include "V{kind}.h"\n#include "V{kind}___024root.h"\nvoid V{kind}___024root___eval(V{kind}___024root*);'
            for kind in self.parts.blocks
        )
        units = "\n".join(f"  {self._unit(kind)} {name};" for name, kind in self._by_kind())
        members = "\n".join(self._members())
        work = "\n".join(self._work())
        host = next(index for index, (name, _) in enumerate(self._by_kind()) if name == self._host)
        return (
            f"{blocks}\n{_HEAD}\nstruct Chip {{\n{units}\n{members}\n}};\n{_WORK}\n"
            f"const Work all_work[] = {{\n{work}\n}};\nconstexpr int host_work = {host};\n"
            f"{self._channels()}{_THREADS}{_TAIL}"
        )

    @staticmethod
    def _unit(kind: str) -> str:
        return f"Unit<V{kind}, V{kind}___024root, V{kind}___024root___eval>"

    @property
    def _host(self) -> str:
        return f"tile_{self.config.host}"

    def _by_kind(self) -> list[tuple[str, str]]:
        """Instances and their modules: those of a kind one after another, so that its code stays in the cache."""
        order = list(self.parts.blocks)
        return sorted(self.parts.instances.items(), key=lambda one: order.index(one[1]))

    def _members(self) -> Iterator[str]:
        names = [name for name, _ in self._by_kind()]
        yield "  Chip() {"
        yield "    auto* context = Verilated::threadContextp();"
        yield from (f'    {name}.make(context, "{name}");' for name in names)
        for (name, port), pieces in self.parts.inputs.items():
            if all(not piece.port for piece in pieces) and port != "clk":
                yield f"    set({name}.m->{pin(port)}, {self._value(pieces, self._width(name, port))});"
        yield from (f"    {name}.first();" for name in names)
        yield "  }"
        for name in names:
            yield from self._pull(name, False)
            yield from self._pull(name, True)
        yield "  void cycle();"
        yield "  void observe() {"
        yield from self._observe()
        yield "  }"
        yield from self._bus()

    def _width(self, name: str, port: str) -> int:
        return self.parts.blocks[self.parts.instances[name]].ports[port].width

    def _pull(self, name: str, late: bool) -> Iterator[str]:
        """Takes over what has changed of the outputs that drive an instance: the `late` ones, or the others."""
        found: dict[str, list[str]] = {}
        for (target, port), pieces in self.parts.inputs.items():
            sources = dict.fromkeys(piece.instance for piece in pieces if piece.instance)
            if target != name or not sources or late is not self._follows(pieces):
                continue
            value = self._value(pieces, self._width(name, port))
            put = f"put({name}.m->{pin(port)}, {value})"
            followed = name in self.late and port in self.late[name].inputs
            line = f"{name}.{'followed' if followed else 'changed'} |= {put};"
            if port in QUIET:
                line = f"{name}.m->{pin(port)} = {value};"
            found.setdefault(" | ".join(f"{source}.{'fresh()' if late else 'ran'}" for source in sources), []).append(
                line
            )
        yield f"  void pull_{'late_' if late else ''}{name}() {{"
        for condition, lines in found.items():
            yield f"    if ({condition}) {{"
            yield from (f"      {line}" for line in lines)
            yield "    }"
        yield "  }"

    def _follows(self, pieces: Sequence[Piece]) -> bool:
        return any(piece.instance in self.late and piece.port in self.late[piece.instance].outputs for piece in pieces)

    def _work(self) -> Iterator[str]:
        """What is to be done for each instance in a cycle, and about how much that is."""
        after = {name for (name, _), pieces in self.parts.inputs.items() if self._follows(pieces)}
        routers = len(self.config.tiles) * self.config.noc.data_vcs
        weights = {"core": 8 + self.config.rows * self.config.cols // 64, "data_plane": routers}
        for name, kind in self._by_kind():
            calls = [f"pull_{name}()", f"{name}.settle()" if name in self.late else ""]
            calls += [f"pull_late_{name}()" if name in after else "", f"{name}.step()"]
            actions = ", ".join(f"[](Chip& chip) {{ chip.{call}; }}" if call else "nullptr" for call in calls)
            yield f"  {{{weights.get(kind.removeprefix('tile_'), weights.get(name, 3))}, {actions}}},"

    def _value(self, pieces: Sequence[Piece], width: int) -> str:
        """What drives an input of that width, as an expression."""
        first = pieces[0]
        if len(pieces) == 1 and first.port and first.first == 0 and first.width in (width, self._source_width(first)):
            return f"{first.instance}.m->{pin(first.port)}"
        terms: list[tuple[int, int, str]] = []  # first bit, width, value
        at = 0
        for piece in pieces:
            value = f"bits({piece.instance}.m->{pin(piece.port)}, {piece.first}, {piece.width})"
            terms.append((at, piece.width, value if piece.port else str(piece.value)))
            at += piece.width
        if width <= 64:
            return " | ".join(f"QData{{{value}}} << {at}" for at, _, value in terms)
        into = "".join(f" place(to, {at}, {bits}, {value});" for at, bits, value in terms)
        return f"[&] {{ VlWide<{(width + 31) // 32}> to{{}};{into} return to; }}()"

    def _source_width(self, piece: Piece) -> int:
        return self._width(piece.instance, piece.port) if piece.instance else 0

    def _observe(self) -> Iterator[str]:
        """Notes what the cores' units write in this cycle."""
        for number, tile in enumerate(self.config.cores):
            for unit, region in TAPS.items():
                core = f"tile_{tile}.m->p_seen_{unit}"
                at = f"{core}_addr | {number << 24 | int(region) << LOG_OFFSET_BITS:#x}u"
                yield f"    if ({core}_en) note({at}, {core}_data);"

    def _bus(self) -> Iterator[str]:
        """The host's registers, and reset, which reaches all blocks."""
        yield f"  {self._unit(self.parts.instances[self._host])}& host() {{ return {self._host}; }}"
        yield "  void reset(bool value) {"
        for (name, port), pieces in self.parts.inputs.items():
            if pieces == (Piece(1, port="rst"),):  # whatever it is called there
                yield f"    {name}.changed |= put({name}.m->{pin(port)}, value);"
        yield "  }"
        yield f"  bool irq() {{ return {self._host}.m->p_irq; }}"
        yield f"  bool protocol() {{ return {' | '.join(f'{name}.m->protocol_error' for name in self.drams)}; }}"

    def _channels(self) -> str:
        """Functions of DRAM channels."""
        memory = f"unit__DOT__{MODEL}__DOT__"
        cases = "\n".join(
            f"    case {number}: return use(chip().{name}.m->{memory}mem, chip().{name}.m->{memory}reach);"
            for number, name in enumerate(self.drams)
        )
        return f"""
Chip& chip() {{
  static Chip one;
  return one;
}}

constexpr unsigned lanes = {self.config.lanes};
template <class Use> int with_channel(int channel, Use use) {{
  switch (channel) {{
{cases}
  }}
  return 0;
}}
"""


# Reads and writes of values of up to 64 bits, and of wider ones, which Verilator keeps as arrays of 32-bit words.
_HEAD = r"""
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
    ran = changed | due | m->awake;
    if (!ran) return;
    due = false;
    take();
    m->tick = !m->tick;
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
"""

_WORK = r"""
using Action = void (*)(Chip&);
struct Work {
  int weight;
  Action pull, settle, pull_late, step;
};
"""

# A cycle, by one thread or by several: between steps that read others' outputs and such that change them all threads
# wait for each other.
_THREADS = r"""
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
      if (first && record_file) one.observe();
      for (const Work& some : duty) some.step(one);
      if (first) ended = --left <= 0 || one.irq();
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
    take(all[host_work], 0);  // who runs the host sees when a run ends
    all.erase(all.begin() + host_work);
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
"""

_TAIL = r"""
inline unsigned big_endian(const unsigned char* from) {
  return unsigned{from[0]} << 24 | unsigned{from[1]} << 16 | unsigned{from[2]} << 8 | from[3];
}

}  // namespace

extern "C" {

void chip_reset(svBit value) { chip().reset(value); }

void chip_wait(int cycles) {
  for (; cycles > 0; --cycles) chip().cycle();
}

int chip_run(int cycles) {
  Chip& one = chip();
  if (one.irq() || cycles <= 0) return one.irq();
  if (Threads* some = threads()) some->run(cycles);
  else for (; cycles > 0 && !one.irq(); --cycles) one.cycle();
  return one.irq();
}

void chip_write(int address, int value) {
  auto& host = chip().host();
  host.m->p_bus_awaddr = address;
  host.m->p_bus_wdata = value;
  host.m->p_bus_wstrb = 15;
  host.m->p_bus_awvalid = host.m->p_bus_wvalid = host.m->p_bus_bready = 1;
  for (bool taken = false; !taken;) {
    host.followed = true;
    host.settle();
    taken = host.m->p_bus_awready && host.m->p_bus_wready;
    chip().cycle();
  }
  host.m->p_bus_awvalid = host.m->p_bus_wvalid = 0;
  for (bool answered = false; !answered;) {
    host.changed = true;
    answered = host.m->p_bus_bvalid;
    chip().cycle();
  }
}

int chip_read(int address) {
  auto& host = chip().host();
  host.m->p_bus_araddr = address;
  host.m->p_bus_arvalid = host.m->p_bus_rready = 1;
  for (bool taken = false; !taken;) {
    host.changed = true;
    taken = host.m->p_bus_arready;
    chip().cycle();
  }
  host.m->p_bus_arvalid = 0;
  for (;;) {
    host.changed = true;
    const bool answered = host.m->p_bus_rvalid;
    const int value = host.m->p_bus_rdata;
    chip().cycle();
    if (answered) return value;
  }
}

int chip_load(int channel, const char* path) {
  FILE* file = std::fopen(path, "rb");
  if (!file) return 0;
  const bool whole = with_channel(channel, [file](auto& memory, IData& reach) {
    for (IData word = 0; word < reach; ++word) std::memset(&memory[word], 0, sizeof memory[word]);
    reach = 0;
    unsigned char head[8], bytes[lanes];
    for (;;) {
      const std::size_t got = std::fread(head, 1, sizeof head, file);
      if (got != sizeof head) return got == 0;
      const unsigned first = big_endian(head), words = big_endian(head + 4);
      if (first > sizeof memory / sizeof memory[0] || words > sizeof memory / sizeof memory[0] - first) return false;
      for (unsigned word = first; word < first + words; ++word) {
        if (std::fread(bytes, 1, lanes, file) != lanes) return false;
        auto* to = reinterpret_cast<unsigned char*>(&memory[word]);
        for (unsigned lane = 0; lane < lanes; ++lane) to[lane] = bytes[lanes - 1 - lane];
      }
      if (first + words > reach) reach = first + words;
    }
  });
  std::fclose(file);
  return whole;
}

int chip_dump(int channel, const char* path, int first, int last) {
  FILE* file = std::fopen(path, "w");
  if (!file) return 0;
  with_channel(channel, [=](auto& memory, IData&) {
    char line[2 * lanes + 1];
    line[2 * lanes] = '\n';
    for (int word = first; word <= last; ++word) {
      const auto* from = reinterpret_cast<const unsigned char*>(&memory[word]);
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const unsigned char byte = from[lanes - 1 - lane];
        line[2 * lane] = "0123456789abcdef"[byte >> 4];
        line[2 * lane + 1] = "0123456789abcdef"[byte & 15];
      }
      std::fwrite(line, sizeof line, 1, file);
    }
    return 1;
  });
  return std::fclose(file) == 0;
}

int chip_log(const char* path) {
  if (record_file) {
    FILE* file = record_file;
    record_file = nullptr;
    if (std::fclose(file)) return 0;
  }
  return !*path || (record_file = std::fopen(path, "wb"));
}

int chip_protocol() { return chip().protocol(); }

}  // extern "C"
"""
