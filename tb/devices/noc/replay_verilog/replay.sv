// Traffic that a file lists, around one mesh: a source and a sink of every tile, in one clocked block.
//
// The file: the number of packets, then for each packet its source node, the cycle from which on it may leave, its
// destination node and its flits; by source, in the order in which each source sends them. A source sends one packet at
// a time, a flit a cycle at most; sinks take what comes. Node = y * WIDTH + x; a packet's number is its place in the file.
//
//     [7:0] destination  [31:8] packet  [36] 0: no route  [42:37] position  [62:43] the packet's complement
//
// It prints "RESULT cycles=... flits=..." or "ERROR words", and writes into `out` for each packet the cycles in which its
// first flit left and its last one arrived, then for each node and port how many cycles a flit left there, and how many
// one wanted to and could not.
module traffic #(
    parameter int WIDTH = 2,
    parameter int HEIGHT = 2,
    parameter int VCS = 1,
    parameter int BITS = 63,
    parameter bit ORDERED = 1,
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
    localparam int SLOTS = NODES * VCS;
    localparam int QUIET = 20000;  // cycles without a moving flit after which the mesh is stuck
    localparam int RESET = 4;      // cycles

    string packets_file = "", out_file = "";
    int unsigned limit = 0, cycle = 0, now = 0, count = 0, arrived = 0, moved_at = 0;
    longint unsigned sent = 0, taken = 0;
    int unsigned source [], leaves [], target [], flits [], left [], came [];
    int unsigned next_one [NODES + 1], first [NODES + 1], place [NODES];
    bit offer [NODES], offer_q [NODES], fresh [NODES], fresh_q [NODES];
    logic [BITS:0] flit [NODES], flit_q [NODES];
    logic [1:0] turn [NODES], turn_q [NODES];
    bit open [SLOTS];
    int unsigned taking [SLOTS], position [SLOTS];
    longint unsigned busy_cycles [NODES * 5], blocked_cycles [NODES * 5];
    bit stopped = 0;
    int file, status;

    function automatic logic [7:0] tile(int unsigned node);
        return {4'(node / WIDTH), 4'(node % WIDTH)};
    endfunction

    function automatic logic [BITS:0] built(int unsigned packet, int unsigned at);
        logic [BITS-1:0] data;
        data = '0;
        data[7:0] = tile(target[packet]);
        data[31:8] = 24'(packet);
        data[42:37] = 6'(at);
        data[62:43] = ~20'(packet);
        return {at + 1 == flits[packet], data};
    endfunction

    always_comb
        for (int n = 0; n < NODES; n++) begin
            logic [VCS-1:0] asking;
            asking = !offer_q[n] ? '0 : fresh_q[n] ? '1 : VCS'(1 << turn_q[n]);
            if (VCS > 1) asking &= inject_ready[n];
            inject_valid[n] = |asking;
            inject_vc[n] = 0;
            for (int v = VCS - 1; v >= 0; v--) if (asking[v]) inject_vc[n] = 2'(v);
            inject_flit[n] = flit_q[n];
        end

    task automatic stop(string words);
        if (!stopped) $display("ERROR %s (cycle %0d)", words, now);
        stopped = 1;
        $finish(0);
    endtask

    task automatic take(int unsigned n, logic [1:0] vc, logic [BITS:0] got);
        int unsigned s;
        s = n * VCS + int'(vc);
        if (!open[s]) begin
            taking[s] = int'(got[31:8]);
            position[s] = 0;
            open[s] = 1;
        end
        if (taking[s] >= count) stop($sformatf("tile %h took a flit of no packet: %h", tile(n), got));
        else if (target[taking[s]] != n || got != built(taking[s], position[s]))
            stop($sformatf("tile %h took %h as flit %0d of packet %0d", tile(n), got, position[s], taking[s]));
        else begin
            position[s] += 1;
            taken += 1;
            if (got[BITS]) begin
                open[s] = 0;
                came[taking[s]] = now;
                arrived += 1;
            end
        end
    endtask

    task automatic finish;
        $display("RESULT cycles=%0d flits=%0d", now, taken);
        file = $fopen(out_file, "w");
        for (int unsigned p = 0; p < count; p++) $fdisplay(file, "%0d %0d", left[p], came[p]);
        for (int n = 0; n < NODES; n++)
            for (int port = 0; port < 5; port++)
                $fdisplay(file, "%0d %0d", busy_cycles[n * 5 + port], blocked_cycles[n * 5 + port]);
        $fclose(file);
        stopped = 1;
        $finish(0);
    endtask

    always @(posedge clk) if (!stopped) begin
        now = cycle - RESET;
        if (!rst) for (int unsigned n = 0; n < NODES; n++) begin
            if (inject_valid[n] && inject_ready[n][inject_vc[n]]) begin
                turn[n] = inject_vc[n];
                offer[n] = 0;
                if (place[n] == 0) left[next_one[n]] = now;
                place[n] += 1;
                sent += 1;
                moved_at = cycle;
                if (place[n] == flits[next_one[n]]) begin
                    next_one[n] += 1;
                    place[n] = 0;
                end
            end
            if (eject_valid[n] && eject_ready[n][eject_vc[n]]) begin
                moved_at = cycle;
                take(n, eject_vc[n], eject_flit[n]);
            end
            if (fault[n]) stop($sformatf("fault: tile %h dropped a packet for %h", tile(n), fault_tile[n]));
            for (int port = 0; port < 5; port++) begin
                busy_cycles[n * 5 + port] += 64'(busy[n][port]);
                blocked_cycles[n * 5 + port] += 64'(blocked[n][port]);
            end
            if (!offer[n] && next_one[n] < first[n + 1] && (place[n] != 0 || leaves[next_one[n]] <= now)) begin
                offer[n] = 1;
                flit[n] = built(next_one[n], place[n]);
                fresh[n] = place[n] == 0;
            end
        end
        if (sent == taken) moved_at = cycle;
        if (arrived == count && !stopped) finish();
        else if (cycle - moved_at == QUIET)
            stop($sformatf("stuck: no flit has moved for %0d cycles, %0d sent and %0d taken", QUIET, sent, taken));
        else if (limit != 0 && now == limit && cycle > RESET)
            stop($sformatf("not done: %0d of %0d packets have arrived in %0d cycles", arrived, count, limit));
        cycle += 1;
        rst <= cycle < RESET;
        offer_q <= offer;
        flit_q <= flit;
        turn_q <= turn;
        fresh_q <= fresh;
        for (int n = 0; n < NODES; n++) eject_ready[n] <= '1;
    end

    initial begin
        rst = 1;
        void'($value$plusargs("packets=%s", packets_file));
        void'($value$plusargs("out=%s", out_file));
        void'($value$plusargs("limit=%d", limit));
        file = $fopen(packets_file, "r");
        status = $fscanf(file, "%d", count);
        source = new[count];
        leaves = new[count];
        target = new[count];
        flits = new[count];
        left = new[count];
        came = new[count];
        for (int n = 0; n <= NODES; n++) first[n] = count;
        for (int unsigned p = 0; p < count; p++)
            status = $fscanf(file, "%d %d %d %d", source[p], leaves[p], target[p], flits[p]);
        $fclose(file);
        for (int p = int'(count) - 1; p >= 0; p--)
            for (int n = 0; n <= int'(source[p]); n++) first[n] = p;
        for (int n = 0; n < NODES; n++) begin
            next_one[n] = first[n];
            place[n] = 0;
            offer[n] = 0;
            offer_q[n] = 0;
            fresh[n] = 0;
            turn[n] = 0;
            turn_q[n] = 0;
            eject_ready[n] = 0;
        end
        for (int s = 0; s < SLOTS; s++) open[s] = 0;
        for (int i = 0; i < NODES * 5; i++) begin
            busy_cycles[i] = 0;
            blocked_cycles[i] = 0;
        end
    end
endmodule
