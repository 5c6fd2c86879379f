// A board under Verilator whose UART is bridged to one TCP connection.
//
// board PORT DIVISOR: listens on PORT of the loopback (0: any), prints it, and ends when its standard input does. A second
// connection is closed at once. The clock stands while nothing goes on: no byte on its way, no run.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "Vboard.h"

namespace {

// Cycles without a byte or a run after which the clock stands: a request is carried out in fewer.
constexpr unsigned kRest = 20000;
// Cycles between two looks at the connection.
constexpr unsigned kLook = 256;

// The far end of a UART: 8N1.
class Uart {
  public:
    explicit Uart(unsigned divisor) : divisor_(divisor) {}

    std::deque<unsigned char> to_board, from_board;

    // What the line towards the board is in this cycle.
    bool sends() {
        if (out_bits_ == 0) {
            if (to_board.empty()) return true;
            out_ = 0x200u | (to_board.front() << 1);
            to_board.pop_front();
            out_bits_ = 10;
            out_left_ = divisor_;
        }
        const bool bit = out_ & 1u;
        if (--out_left_ == 0) {
            out_ >>= 1;
            --out_bits_;
            out_left_ = divisor_;
        }
        return bit;
    }

    // Sees the line from the board in this cycle.
    void hears(bool line) {
        if (in_bits_ == 0) {
            if (line) return;
            in_bits_ = 9;
            in_left_ = divisor_ + divisor_ / 2;
            in_ = 0;
        }
        if (--in_left_ != 0) return;
        in_left_ = divisor_;
        if (--in_bits_ == 0) {
            if (line) from_board.push_back(static_cast<unsigned char>(in_));
        } else {
            in_ = (in_ >> 1) | (line ? 0x80u : 0u);
        }
    }

    bool at_rest() const { return out_bits_ == 0 && in_bits_ == 0 && to_board.empty() && from_board.empty(); }

  private:
    const unsigned divisor_;
    unsigned out_ = 0, out_bits_ = 0, out_left_ = 0;
    unsigned in_ = 0, in_bits_ = 0, in_left_ = 0;
};

int listening(unsigned short port) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(port);
    socklen_t size = sizeof place;
    if (bind(server, reinterpret_cast<sockaddr*>(&place), size) != 0 || listen(server, 4) != 0 ||
        getsockname(server, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
        std::perror("listen");
        std::exit(2);
    }
    std::printf("%d\n", ntohs(place.sin_port));
    std::fflush(stdout);
    return server;
}

// The connection: at most one.
class Bridge {
  public:
    Bridge(int server, Uart& uart) : server_(server), uart_(uart) {}

    // Moves bytes both ways; waits for something to happen if `wait`.
    void look(bool wait) {
        pollfd all[] = {{STDIN_FILENO, POLLIN, 0}, {server_, POLLIN, 0}, {client_, POLLIN, 0}};
        if (poll(all, client_ < 0 ? 2 : 3, wait ? -1 : 0) < 0 && errno != EINTR) std::exit(1);
        unsigned char bytes[4096];
        if ((all[0].revents & (POLLIN | POLLHUP)) && read(STDIN_FILENO, bytes, sizeof bytes) <= 0) std::exit(0);
        take();  // first: who has left makes room for who has come
        if (all[1].revents & POLLIN) accept_one();
        while (client_ >= 0 && !uart_.from_board.empty()) {
            const unsigned char byte = uart_.from_board.front();
            const ssize_t size = send(client_, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (size == 1) uart_.from_board.pop_front();
            else if (errno == EAGAIN) break;
            else leave();
        }
        if (client_ < 0) uart_.from_board.clear();  // nobody hears it
    }

  private:
    // Takes what the host has sent; notices that it has left.
    void take() {
        unsigned char bytes[4096];
        while (client_ >= 0) {
            const ssize_t size = recv(client_, bytes, sizeof bytes, MSG_DONTWAIT);
            if (size > 0) uart_.to_board.insert(uart_.to_board.end(), bytes, bytes + size);
            else if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
            else leave();
        }
    }

    void accept_one() {
        const int other = accept4(server_, nullptr, nullptr, SOCK_CLOEXEC);
        if (other < 0) return;
        if (client_ >= 0) {
            close(other);
            return;
        }
        const int on = 1;
        setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        client_ = other;
    }

    void leave() {
        close(client_);
        client_ = -1;
        uart_.to_board.clear();
    }

    const int server_;
    Uart& uart_;
    int client_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    Uart uart(static_cast<unsigned>(std::atoi(argv[2])));
    Bridge bridge(listening(static_cast<unsigned short>(std::atoi(argv[1]))), uart);
    VerilatedContext context;
    Vboard board(&context);
    board.rx = 1;
    board.rst = 1;
    unsigned quiet = 0;
    for (unsigned long cycle = 0;; cycle++) {
        board.clk = 0;
        board.eval();
        uart.hears(board.tx);
        board.rx = uart.sends();
        board.rst = cycle < 16;
        board.clk = 1;
        board.eval();
        if (context.gotFinish()) return 3;  // its SDRAM has said why
        quiet = board.busy || !uart.at_rest() ? 0 : quiet + 1;
        if (cycle % kLook == 0 || quiet == kRest) {
            bridge.look(quiet >= kRest);
            if (quiet >= kRest && !uart.at_rest()) quiet = 0;
            else if (quiet >= kRest) quiet = kRest - 1;
        }
    }
}
