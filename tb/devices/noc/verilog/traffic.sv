// Traffic around one mesh: sources, sinks, checkers and statistics of every tile, in one clocked block.
//
// A flit says whose it is, and the sink knows every bit of the next one of its packet:
//
//     [7:0] destination  [13:8] source node  [15:14] flow  [25:16] sequence number of (source, destination, flow)
//     [31:26] head: flits - 1, others: position  [35:32] fold of all that  [36] head: it has a route
//     [62:37] head with a route: the route, and all ones when it arrives; everything else from bit 36 on: hash of [31:0]
//
// Node = y * WIDTH + x. Flow = the channel on which the packet was injected (soak), 0 (queued).
//
// Two kinds of sources, chosen by a plusarg:
//   soak    every channel of every tile sends packets of 1..64 flits to random tiles, with random gaps; sinks stall. Ends
//           when `flits` have been sent and everything has arrived
//   queued  packets of one length are created at random, wait in a queue without bound, and leave it one after the
//           other, each on the next channel that has room; sinks never stall. Latency: from the cycle in which a packet
//           is created (it is offered from the next one on) to the cycle in which its last flit is taken, both counted
//
// The first error ends the run. It prints one line: "RESULT name=value ...", or "ERROR words".
module traffic #(
    parameter int WIDTH = 2,
    parameter int HEIGHT = 2,
    parameter int VCS = 1,
    parameter int BITS = 63,
    parameter bit ORDERED = 1,  // packets keep their channel, and so their order
    localparam int NODES = WIDTH * HEIGHT
) (
    input  wire             clk,
    output logic            rst,
    output logic            inject_valid [NODES],
    output logic [BITS:0]   inject_flit  [NODES],  // {last, data}
    output logic [1:0]      inject_vc    [NODES],
    input  wire  [VCS-1:0]  inject_ready [NODES],
    input  wire             eject_valid  [NODES],
    input  wire  [BITS:0]   eject_flit   [NODES],
    input  wire  [1:0]      eject_vc     [NODES],
    output logic [VCS-1:0]  eject_ready  [NODES],
    input  wire  [4:0]      busy         [NODES],
    input  wire  [4:0]      blocked      [NODES],
    input  wire             fault        [NODES],
    input  wire  [7:0]      fault_tile   [NODES]
);
    localparam int PAIRS = NODES * NODES;
    localparam int SLOTS = NODES * VCS;
    localparam int FLOWS = PAIRS * VCS;
    localparam int QUEUE = 1 << 14;  // packets of one source queue
    localparam int WINDOW = 512;     // a flow's packet that many numbers ahead of the oldest missing one is not sent yet
    localparam int VARIETY = 4;      // routes between the same two tiles
    localparam int QUIET = 20000;    // cycles without a moving flit after which the mesh is stuck
    localparam int SETTLE = 256;     // cycles watched after everything has arrived
    localparam int PHASE = 1024;     // cycles after which tiles change their habits
    localparam int RESET = 4;        // cycles

    // -- settings ---------------------------------------------------------------------------------------------------
    int unsigned seed = 1, length = 1, warmup = 0, sample = 0, limit = 0, transposed = 0, hot = 0, weight = 1;
    int unsigned routed_share = 0, stalls = 1, queued = 0;
    longint unsigned load = 0, flits = 0;  // load: packets per cycle and node, times 2^32
    string routes_file = "";
    logic [31:0] route_table [PAIRS * VARIETY];  // {hops, route}; 0: there is none

    // -- sources ----------------------------------------------------------------------------------------------------
    logic [63:0] state [NODES];
    int unsigned cycle = 0;
    logic [9:0] next_number [FLOWS];
    logic [1:0] variety [FLOWS];                              // which route; 0: as unrouted packets go
    // One packet under way per slot: soak has one for each channel of a tile, queued uses the first of each tile.
    bit active [SLOTS];
    logic [5:0] target [SLOTS], place [SLOTS], rest [SLOTS];  // node, position, flits - 1
    logic [9:0] number [SLOTS];
    logic [26:0] way [SLOTS];                                 // {route, 1}, or 0
    logic [6:0] hops [SLOTS];
    logic [VCS-1:0] offer [NODES], offer_q [NODES];           // x_q: what the mesh sees
    logic [BITS:0] flit [SLOTS], flit_q [SLOTS];
    logic [1:0] turn [NODES], turn_q [NODES];                 // channel of the flit before
    bit fresh [NODES], fresh_q [NODES];                       // queued: the flit is a head, and free to choose
    logic [2:0] eagerness [NODES];
    int unsigned created_at [NODES * QUEUE];
    logic [5:0] created_to [NODES * QUEUE];
    int unsigned queue_in [NODES], queue_out [NODES];
    int unsigned stamp [PAIRS * 1024];

    // -- sinks ------------------------------------------------------------------------------------------------------
    bit open [SLOTS];
    logic [5:0] from [SLOTS], seen_place [SLOTS], seen_rest [SLOTS];
    logic [1:0] flow [SLOTS];
    logic [9:0] seen_number [SLOTS];
    logic [9:0] oldest [FLOWS];        // the first number that has not arrived
    logic [1023:0] arrived [FLOWS];    // numbers beyond that have
    logic [VCS-1:0] room [NODES];
    logic [2:0] laziness [NODES];
    int unsigned pause [NODES];

    // -- statistics -------------------------------------------------------------------------------------------------
    longint unsigned sent = 0, taken = 0, moves = 0, owed_moves = 0, blocked_cycles = 0, packets = 0, routed = 0;
    longint unsigned detours = 0, latency = 0, created = 0, done = 0, accepted = 0, offered = 0;
    int unsigned worst = 0, moved_at = 0, complete_at = 0, overflow = 0, pairs = 0, waiting = 0;
    bit used [PAIRS];
    bit stopped = 0;

    function automatic logic [7:0] tile(int unsigned node);
        return {4'(node / WIDTH), 4'(node % WIDTH)};
    endfunction

    // Every bit of a flit. `path`: {route, 1} of a head that has one, {all ones, 1} when it has arrived; else 0.
    function automatic logic [BITS:0] built(
        int unsigned source, int unsigned node, logic [1:0] on, logic [9:0] count, logic [5:0] at, bit first, bit last,
        logic [26:0] path);
        logic [31:0] who, hash;
        logic [3:0] fold;
        logic [BITS-1:0] data;
        who = {at, count, on, 6'(source), tile(node)};
        fold = who[31:28] ^ who[27:24] ^ who[23:20] ^ who[19:16] ^ who[15:12] ^ who[11:8] ^ who[7:4] ^ who[3:0]
             ^ {first, last, 2'b01};
        hash = (who ^ {16'b0, who[31:16]} ^ {first, 31'b0}) * 32'h9E3779B1;
        hash = hash ^ (hash >> 15);
        // the last bit of a head's hash would be its route flag
        data = BITS'({9{hash}}) << 63 | BITS'({hash[25:0], hash[26] & ~first, fold, who});
        if (path[0]) data[62:36] = path;
        return {last, data};
    endfunction

    function automatic logic [63:0] shuffled(logic [63:0] x);
        x ^= x << 13;
        x ^= x >> 7;
        return x ^ (x << 17);
    endfunction

    // The random number of a state, 0..count-1.
    function automatic int unsigned below(logic [63:0] x, int unsigned count);
        x = x * 64'h2545F4914F6CDD1D;
        return 32'((64'(x[63:32]) * 64'(count)) >> 32);
    endfunction

    // The next of the channels `asking` after `last_one`; any if none asks.
    function automatic logic [1:0] next_of(logic [VCS-1:0] asking, logic [1:0] last_one);
        logic [1:0] found;
        found = 0;
        for (int step = VCS; step >= 1; step--) begin
            int at;
            at = int'(last_one) + step;
            if (at >= VCS) at -= VCS;
            if (asking[at]) found = 2'(at);
        end
        return found;
    endfunction

    // One in 1, 1, 2, 4, 16, 64, 256 cycles, or none, by habit.
    function automatic bit willing(logic [2:0] habit, logic [7:0] draw);
        case (habit)
            0, 1: return 1;
            2: return draw[0];
            3: return draw[1:0] == 0;
            4: return draw[3:0] == 0;
            5: return draw[5:0] == 0;
            6: return draw == 0;
            default: return 0;
        endcase
    endfunction

    // -- which flit goes: registers and the room that the mesh has decide -----------------------------------------------
    always_comb
        for (int n = 0; n < NODES; n++) begin
            logic [VCS-1:0] asking;
            if (queued == 0) asking = offer_q[n];
            else if (!offer_q[n][0]) asking = '0;
            else if (fresh_q[n]) asking = '1;
            else asking = VCS'(1 << turn_q[n]);
            if (VCS > 1) asking &= inject_ready[n];  // of several channels only one with room may be chosen
            inject_valid[n] = |asking;
            inject_vc[n] = next_of(asking, turn_q[n]);
            inject_flit[n] = flit_q[queued != 0 ? n * VCS : n * VCS + int'(inject_vc[n])];
        end

    // -- errors ---------------------------------------------------------------------------------------------------------
    task automatic stop(string words);
        if (!stopped) $display("ERROR %s (cycle %0d, seed %0d)", words, cycle, seed);
        stopped = 1;
        $finish(0);
    endtask

    function automatic string described(logic [BITS:0] what);
        return $sformatf("(destination %h, source node %0d, flow %0d, number %0d, length or position %0d, last %0d, %h)",
            what[7:0], what[13:8], what[15:14], what[25:16], what[31:26], what[BITS], what);
    endfunction

    task automatic wrong(string what, int unsigned n, logic [1:0] vc, logic [BITS:0] got, logic [BITS:0] right);
        stop($sformatf("%s: tile %h took on channel %0d %s, expected %s",
            what, tile(n), vc, described(got), described(right)));
    endtask

    // -- a sink takes a flit ----------------------------------------------------------------------------------------------
    task automatic take_head(int unsigned n, logic [1:0] vc, logic [BITS:0] got);
        int unsigned s, source, f;
        logic [9:0] ahead;
        logic [BITS:0] right;
        s = n * VCS + int'(vc);
        source = int'(got[13:8]);
        right = built(source, n, got[15:14], got[25:16], got[31:26], 1, got[31:26] == 0, got[36] ? '1 : '0);
        if (got[7:0] != tile(n)) wrong("wrong destination", n, vc, got, right);
        else if (got[BITS-1:0] != right[BITS-1:0] || source >= NODES || int'(got[15:14]) >= VCS)
            wrong("no intact head", n, vc, got, right);
        else if (got != right) wrong("wrong length", n, vc, got, right);
        else if (ORDERED && queued == 0 && got[15:14] != vc) wrong("left its channel", n, vc, got, right);
        else begin
            f = (int'(got[15:14]) * NODES + source) * NODES + n;
            ahead = got[25:16] - oldest[f];
            right[25:16] = oldest[f];
            if (ahead >= WINDOW || arrived[f][got[25:16]]) wrong("duplicated packet", n, vc, got, right);
            if (ORDERED && queued == 0 && ahead != 0) wrong("lost or reordered packet", n, vc, got, right);
            arrived[f][got[25:16]] = 1;
            while (arrived[f][oldest[f]]) begin
                arrived[f][oldest[f]] = 0;
                oldest[f] += 1;
            end
            from[s] = 6'(source);
            flow[s] = got[15:14];
            seen_number[s] = got[25:16];
            seen_rest[s] = got[31:26];
            seen_place[s] = 0;
            open[s] = 1;
        end
    endtask

    task automatic take_body(int unsigned n, logic [1:0] vc, logic [BITS:0] got);
        int unsigned s;
        logic [BITS:0] right;
        s = n * VCS + int'(vc);
        right = built(int'(from[s]), n, flow[s], seen_number[s], seen_place[s], 0, seen_place[s] == seen_rest[s], 0);
        if (got != right) begin
            if (got[BITS-1:0] == right[BITS-1:0]) wrong("wrong length", n, vc, got, right);
            else if (got[25:0] == right[25:0]) wrong("lost, duplicated, reordered or corrupted flit", n, vc, got, right);
            else wrong("packet not whole", n, vc, got, right);
        end
    endtask

    task automatic take(int unsigned n, logic [1:0] vc, logic [BITS:0] got);
        int unsigned s, at;
        s = n * VCS + int'(vc);
        if (!open[s]) take_head(n, vc, got);
        else take_body(n, vc, got);
        taken += 1;
        if (cycle >= warmup && cycle < warmup + sample) accepted += 1;
        seen_place[s] += 1;
        if (got[BITS]) begin
            open[s] = 0;
            at = stamp[(int'(from[s]) * NODES + n) * 1024 + int'(seen_number[s])];
            if (queued != 0 && at >= warmup && at < warmup + sample) begin
                done += 1;
                latency += 64'(cycle - at);
                if (cycle - at > worst) worst = cycle - at;
            end
        end
    endtask

    // -- a source starts a packet -------------------------------------------------------------------------------------
    // Leaves the slot inactive when too many of the flow's packets are still on their way.
    task automatic start(int unsigned n, int unsigned v, int unsigned to, logic [5:0] more, int unsigned at, logic [63:0] draw);
        int unsigned s, f, direct;
        logic [31:0] entry;
        logic [9:0] under_way;
        s = n * VCS + v;
        f = ((queued != 0 ? 0 : v) * NODES + n) * NODES + to;
        under_way = next_number[f] - oldest[f];
        if (under_way < 10'(WINDOW)) begin
            active[s] = 1;
            target[s] = 6'(to);
            place[s] = 0;
            rest[s] = more;
            number[s] = next_number[f];
            next_number[f] += 1;
            stamp[(n * NODES + to) * 1024 + int'(number[s])] = at;
            direct = (n / WIDTH > to / WIDTH ? n / WIDTH - to / WIDTH : to / WIDTH - n / WIDTH)
                   + (n % WIDTH > to % WIDTH ? n % WIDTH - to % WIDTH : to % WIDTH - n % WIDTH);
            // packets on different ways overtake each other: a flow changes its own when nothing of it is under way
            if (!ORDERED || under_way == 0) variety[f] = int'(draw[23:16]) < routed_share ? draw[1:0] : 2'd0;
            entry = variety[f] != 0 || int'(draw[15:8]) < routed_share
                  ? route_table[(n * NODES + to) * VARIETY + int'(variety[f])] : 0;
            way[s] = {entry[25:0], entry != 0};
            hops[s] = entry != 0 ? 7'(entry[31:26]) : 7'(direct);
            if (!used[n * NODES + to]) pairs += 1;
            used[n * NODES + to] = 1;
            packets += 1;
            if (entry != 0) routed += 1;
            if (int'(hops[s]) != direct) detours += 1;
        end
    endtask

    task automatic put(int unsigned n, int unsigned v);
        int unsigned s;
        s = n * VCS + v;
        offer[n][v] = 1;
        flit[s] = built(n, int'(target[s]), queued != 0 ? 2'd0 : 2'(v), number[s], place[s] == 0 ? rest[s] : place[s],
            place[s] == 0, place[s] == rest[s], place[s] == 0 ? way[s] : 27'd0);
        fresh[n] = place[s] == 0;
    endtask

    // -- what each tile does in a cycle -----------------------------------------------------------------------------------
    task automatic soak(int unsigned n);
        bit closing, idle, calm;
        closing = sent >= flits;
        if (cycle % PHASE == n * 7 % PHASE) begin
            state[n] = shuffled(state[n]);
            calm = cycle / PHASE % 2 != 0;  // one sluggish tile is felt by all, so not always
            eagerness[n] = calm ? {1'b0, state[n][9:8]} : state[n][10:8];
            laziness[n] = stalls == 0 ? 3'd0 : calm ? {1'b0, state[n][16], 1'b0} : state[n][18:16];
        end
        for (int unsigned v = 0; v < VCS; v++) begin
            int unsigned s;
            s = n * VCS + v;
            if (offer[n][v]) begin end
            else if (closing || willing(eagerness[n], state[n][v * 8 +: 8])) begin
                if (!active[s] && !closing) begin
                    state[n] = shuffled(state[n]);
                    start(n, v, below(state[n], NODES), state[n][40] ? {4'b0, state[n][42:41]} : state[n][48:43], 0,
                        state[n]);
                end
                if (active[s]) put(n, v);
            end
            // room that has been shown stays until it is used
            if (pause[n] == 0 && willing(laziness[n], state[n][32 + v * 8 +: 8])) room[n][v] = 1;
        end
        // a tile that takes nothing by habit is one that takes everything, then nothing for long, and so on
        if (pause[n] != 0) pause[n] -= 1;
        else if (laziness[n] == 7) begin
            if (state[n][63:58] == 0) pause[n] = 1 + int'(state[n][57:49]);
            else room[n] = '1;
        end
        idle = offer[n] == 0;
        for (int unsigned v = 0; v < VCS; v++) idle &= !active[n * VCS + v];
        if (!idle || !closing) waiting += 1;
    endtask

    task automatic serve(int unsigned n);
        int unsigned to;
        if (64'(32'((state[n] * 64'h2545F4914F6CDD1D) >> 32)) < load) begin
            state[n] = shuffled(state[n]);
            if (transposed != 0) to = n % WIDTH * WIDTH + n / WIDTH;
            else begin
                to = below(state[n], NODES + weight - 1);
                if (to >= NODES) to = hot;
            end
            if (cycle >= warmup && cycle < warmup + sample) begin
                created += 1;
                offered += 64'(length);
            end
            if (queue_in[n] - queue_out[n] == QUEUE) overflow += 1;
            else begin
                created_at[n * QUEUE + queue_in[n] % QUEUE] = cycle;
                created_to[n * QUEUE + queue_in[n] % QUEUE] = 6'(to);
                queue_in[n] += 1;
            end
        end
        if (!offer[n][0]) begin
            if (!active[n * VCS] && queue_in[n] != queue_out[n]) begin
                to = n * QUEUE + queue_out[n] % QUEUE;
                start(n, 0, int'(created_to[to]), 6'(length - 1), created_at[to], 0);
                if (active[n * VCS]) queue_out[n] += 1;
            end
            if (active[n * VCS]) put(n, 0);
        end
        room[n] = '1;
    endtask

    // -- the end ----------------------------------------------------------------------------------------------------------
    task automatic finish;
        for (int f = 0; f < FLOWS; f++)
            if (queued == 0 && next_number[f] != oldest[f])
                stop($sformatf("lost packet: number %0d of flow %0d from node %0d to %0d", oldest[f], f / PAIRS,
                    f / NODES % NODES, f % NODES));
        if (queued == 0 && moves != owed_moves)
            stop($sformatf("busy strobes: %0d flits left routers, their ways add up to %0d", moves, owed_moves));
        if (!stopped)
            $display("RESULT cycles=%0d sent=%0d taken=%0d packets=%0d pairs=%0d routed=%0d detours=%0d moves=%0d blocked=%0d offered=%0d accepted=%0d created=%0d done=%0d latency=%0d worst=%0d overflow=%0d",
                cycle, sent, taken, packets, pairs, routed, detours, moves, blocked_cycles, offered, accepted, created, done,
                latency, worst, overflow);
        stopped = 1;
        $finish(0);
    endtask

    always @(posedge clk) if (!stopped) begin
        waiting = 0;
        if (!rst) for (int unsigned n = 0; n < NODES; n++) begin
            if (inject_valid[n] && inject_ready[n][inject_vc[n]]) begin
                int unsigned s;
                s = queued != 0 ? n * VCS : n * VCS + int'(inject_vc[n]);
                turn[n] = inject_vc[n];
                offer[n][s - n * VCS] = 0;
                if (place[s] == rest[s]) active[s] = 0;
                place[s] += 1;
                sent += 1;
                owed_moves += 64'(hops[s]) + 1;
                moved_at = cycle;
            end
            if (eject_valid[n] && eject_ready[n][eject_vc[n]]) begin
                room[n][eject_vc[n]] = 0;
                moved_at = cycle;
                take(n, eject_vc[n], eject_flit[n]);
            end
            if (fault[n]) stop($sformatf("fault: tile %h dropped a packet for %h", tile(n), fault_tile[n]));
            if ((busy[n] & blocked[n]) != 0) stop($sformatf("busy and blocked at once: tile %h", tile(n)));
            moves += 64'($countones(busy[n]));
            blocked_cycles += 64'($countones(blocked[n]));
            state[n] = shuffled(state[n]);
            if (queued != 0) serve(n);
            else soak(n);
        end
        if (sent == taken && queued != 0) moved_at = cycle;
        if (waiting != 0 || sent != taken) complete_at = cycle;
        if (queued == 0 && cycle - complete_at == SETTLE) finish();
        if (queued != 0 && cycle >= warmup + sample && (created == done || cycle >= limit)) finish();
        if (queued == 0 && limit != 0 && cycle == limit)
            stop($sformatf("not done: %0d flits sent and %0d taken in %0d cycles", sent, taken, limit));
        if (cycle - moved_at == QUIET)
            stop($sformatf("stuck: no flit has moved for %0d cycles, %0d sent and %0d taken", QUIET, sent, taken));
        cycle += 1;
        rst <= cycle < RESET;
        offer_q <= offer;
        flit_q <= flit;
        turn_q <= turn;
        fresh_q <= fresh;
        eject_ready <= room;
    end

    initial begin
        rst = 1;
        void'($value$plusargs("seed=%d", seed));
        void'($value$plusargs("queued=%d", queued));
        void'($value$plusargs("length=%d", length));
        void'($value$plusargs("load=%d", load));
        void'($value$plusargs("transposed=%d", transposed));
        void'($value$plusargs("hot=%d", hot));
        void'($value$plusargs("weight=%d", weight));
        void'($value$plusargs("warmup=%d", warmup));
        void'($value$plusargs("sample=%d", sample));
        void'($value$plusargs("limit=%d", limit));
        void'($value$plusargs("flits=%d", flits));
        void'($value$plusargs("stalls=%d", stalls));
        void'($value$plusargs("routed=%d", routed_share));
        for (int i = 0; i < PAIRS * VARIETY; i++) route_table[i] = 0;
        if ($value$plusargs("routes=%s", routes_file)) $readmemh(routes_file, route_table);
        for (int n = 0; n < NODES; n++) begin
            state[n] = {seed, 32'(n + 1)};
            for (int i = 0; i < 20; i++) state[n] = shuffled(state[n]);
            offer[n] = 0;
            offer_q[n] = 0;
            turn[n] = 0;
            turn_q[n] = 0;
            room[n] = 0;
            eject_ready[n] = 0;
            eagerness[n] = 0;
            laziness[n] = 0;
            pause[n] = 0;
            queue_in[n] = 0;
            queue_out[n] = 0;
        end
        for (int s = 0; s < SLOTS; s++) begin
            active[s] = 0;
            open[s] = 0;
        end
        for (int f = 0; f < FLOWS; f++) begin
            next_number[f] = 0;
            oldest[f] = 0;
            arrived[f] = '0;
        end
        for (int p = 0; p < PAIRS; p++) used[p] = 0;
    end
endmodule
