// What the bench calls. Included last.
#pragma once

namespace {

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

int chip_load(int channel, const char* path, svBit fresh) {
  FILE* file = std::fopen(path, "rb");
  if (!file) return 0;
  const bool whole = with_channel(channel, [file, fresh](auto& memory, IData& reach) {
    if (fresh) {
      for (IData word = 0; word < reach; ++word) std::memset(&memory[word], 0, sizeof memory[word]);
      reach = 0;
    }
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
  chip().loaded();
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
