// One DRAM channel behind an AXI4 subordinate port, for simulation. Works in Verilator 5 and Icarus 11.
//
// A word is LANES bytes; the memory is `mem`, word w at byte address w * LANES, lane l in bits 8l+7..8l. It is filled
// with zeros at time 0; a bench loads and dumps it by its hierarchical name ($readmemh, $writememh, $fread) at any
// later time (at time 0 the two would race). `forget` fills it with zeros again, up to the last word that has been
// written since: a bench that loads words says so in `reach` (first word behind all of them).
//
// Exact timing ("in cycle t" = a transfer at the rising edge that ends cycle t; reads and writes share one rate):
//
//   bucket   In each cycle at most one beat goes, and only if `bucket` >= LANES. After each cycle
//            bucket = min(bucket - (a beat went ? LANES : 0) + RATE_NUM, 2 * LANES). It starts full (2 * LANES).
//            So RATE_NUM = LANES is one beat per cycle; a slower channel that has rested gives up to a few beats at
//            full speed first.
//   reads    AR accepted in cycle t: the first beat may go from cycle t + LATENCY on (rvalid in that cycle, LATENCY
//            >= 1), the further ones behind it as the bucket allows. Bursts are served strictly in order, each after
//            the last beat of the one before, without a bubble; up to 16 are queued (arready = 0 at 16; a burst
//            leaves the queue when its last beat has been taken).
//            A beat pays the bucket in the first cycle of its rvalid and then stays until taken.
//   writes   AW accepted in cycle t: its W beats may go from cycle t + 1 on. Bursts in order. B is valid from
//            WRITE_LATENCY (>= 1) cycles after the burst's last beat, in order, until taken. Up to 16 bursts from AW
//            to B (awready = 0 at 16).
//   both     If a read beat and a write beat could go in the same cycle, the kind that did not go last goes (reads
//            first after reset).
//
// With BANKS (a power of two) the memory has rows and refreshes, by the parameters of dram_banks.v, which says when the
// bus of the parts carries a burst. Then there is no bucket, reads and writes do not take turns beat by beat, and
//
//   reads    AR accepted in cycle t: dram_banks can take the burst from t + 1 on. Its words are in a buffer, from which
//            they go one a cycle; the first goes LATENCY - 1 cycles after its data began on the bus, and as many more as
//            the bus needs more cycles for the burst than it has words, so that none is missing.
//   writes   W beats go at once, into a buffer, in which a burst that is whole in cycle t can be taken from t + 1 on. B
//            is valid from WRITE_LATENCY cycles after its last data on the bus.
//
// A burst that reaches past WORDS answers SLVERR on all its beats (zeros) or its B, takes the same time, and does not
// touch the memory. Only INCR bursts of full words inside one 4 KiB page are understood: anything else, and a wlast in
// the wrong place, sets `protocol_error` for good and says so with the number ID.

module dram_model #(
    parameter LANES = 16,
    parameter WORDS = 1048576,
    parameter LATENCY = 40,
    parameter RATE_NUM = 16,
    parameter WRITE_LATENCY = 4,
    parameter ID = 0,
    parameter ID_BITS = 1,
    parameter BANKS = 0,
    /* verilator lint_off UNUSEDPARAM */  // without BANKS
    parameter ROW_WORDS = 256,
    parameter ACCESS = 64,
    parameter CL = 1,
    parameter CWL = 1,
    parameter RCD = 1,
    parameter RP = 1,
    parameter RAS = 1,
    parameter RTP = 1,
    parameter WR = 1,
    parameter WTR = 1,
    parameter RTW = 1,
    parameter RRD = 1,
    parameter FAW = 1,
    parameter REFI = 1000,
    parameter RFC = 1,
    parameter BLOCK = 1,
    parameter WINDOW = 1,
    parameter TURN = 8
    /* verilator lint_on UNUSEDPARAM */
) (
    input  wire                 clk,
    input  wire                 rst,

    input  wire [ID_BITS-1:0]   awid,
    input  wire [31:0]          awaddr,
    input  wire [7:0]           awlen,
    input  wire [2:0]           awsize,
    input  wire [1:0]           awburst,
    input  wire                 awvalid,
    output wire                 awready,

    input  wire [8*LANES-1:0]   wdata,
    input  wire [LANES-1:0]     wstrb,
    input  wire                 wlast,
    input  wire                 wvalid,
    output wire                 wready,

    output wire [ID_BITS-1:0]   bid,
    output wire [1:0]           bresp,
    output wire                 bvalid,
    input  wire                 bready,

    input  wire [ID_BITS-1:0]   arid,
    input  wire [31:0]          araddr,
    input  wire [7:0]           arlen,
    input  wire [2:0]           arsize,
    input  wire [1:0]           arburst,
    input  wire                 arvalid,
    output wire                 arready,

    output wire [ID_BITS-1:0]   rid,
    output wire [8*LANES-1:0]   rdata,
    output wire [1:0]           rresp,
    output wire                 rlast,
    output wire                 rvalid,
    input  wire                 rready,

    output reg                  protocol_error
);
    localparam SHIFT = $clog2(LANES);
    localparam [31:0] FULL = 2 * LANES;
    localparam [31:0] COST = LANES;
    localparam [31:0] GAIN = RATE_NUM;
    localparam [31:0] SIZE = WORDS;
    localparam [31:0] READ_WAIT = LATENCY;
    localparam [31:0] WRITE_WAIT = WRITE_LATENCY;
    localparam [2:0] BEAT_SIZE = SHIFT[2:0];
    localparam [1:0] INCR = 2'd1;
    localparam [1:0] SLVERR = 2'd2;
    localparam BANKED = BANKS != 0;

    reg [8*LANES-1:0] mem [0:WORDS-1];
`ifndef VERILATOR  // its memories begin with zeros, and pages that nobody has written take no room
    integer i;
    initial for (i = 0; i < WORDS; i = i + 1) mem[i] = 0;
`endif
    initial begin
        reach = 0;
        if (LATENCY < 1 || WRITE_LATENCY < 1 || RATE_NUM < 1) begin
            $display("DRAM %0d: LATENCY, WRITE_LATENCY and RATE_NUM must be at least 1", ID);
            $finish;
        end
    end

    reg [31:0] reach;  // behind the last word written
    integer word;
    task forget;
        begin
            for (word = 0; word < reach; word = word + 1) mem[word] = 0;
            reach = 0;
        end
    endtask

    reg [31:0] now;     // active cycles since reset
    reg [31:0] bucket;  // bytes that may still go
    wire token = BANKED || bucket >= COST;

    // ---- queued reads: a ring, the oldest at `r_out` ---------------------------------------------------------------
    reg [31:0]        r_word [0:15];
    reg [31:0]        r_time [0:15];
    reg [7:0]         r_len  [0:15];
    reg [ID_BITS-1:0] r_id   [0:15];
    reg               r_bad  [0:15];
    reg [3:0]         r_in, r_out;
    reg [4:0]         r_count;
    reg [7:0]         r_beat;  // of the oldest burst
    reg [3:0]         r_next;  // with BANKS: the oldest that has not been taken, and how many have not
    reg [4:0]         r_waits;
    reg               r_held;  // its beat has paid and waits for rready, in r_data
    reg [8*LANES-1:0] r_data;

    // ---- writes: the oldest without all its data at `w_out`, the oldest without its response at `b_out`
    reg [31:0]        w_word [0:15];
    reg [31:0]        w_time [0:15];
    reg [7:0]         w_len  [0:15];
    reg [ID_BITS-1:0] w_id   [0:15];
    reg               w_bad  [0:15];
    reg [3:0]         w_in, w_out, b_out;
    reg [4:0]         w_count, b_count, all_count;  // waiting for data, for their response, and both
    reg [7:0]         w_beat;
    reg [3:0]         w_next;  // with BANKS: the oldest that has not been taken, and how many are whole and have not
    reg [4:0]         w_waits;

    reg prefer_write;  // the last beat was a read

    // Signed differences, so that `now` may wrap.
    wire [31:0] r_early = now - r_time[r_out];
    wire [31:0] b_early = now - w_time[b_out];
    wire r_due = r_count != (BANKED ? r_waits : 5'd0) && !r_early[31] && !r_held && token;
    wire w_due = w_count != 0 && token;
    wire r_new = r_due && (BANKED || !(w_due && wvalid && prefer_write));
    wire w_go = wvalid && wready;
    wire r_go = rvalid && rready;
    wire r_end = r_go && rlast;
    wire w_end = w_go && w_beat == w_len[w_out];
    wire b_go = bvalid && bready;

    assign arready = r_count != 16;
    assign rvalid = r_held || r_new;
    assign rlast = r_beat == r_len[r_out];
    assign rid = r_id[r_out];
    assign rresp = r_bad[r_out] ? SLVERR : 2'd0;
    wire [31:0] r_at = r_word[r_out] + {24'd0, r_beat};
    assign rdata = r_held ? r_data : (r_new && !r_bad[r_out]) ? mem[r_at] : {8*LANES{1'b0}};

    assign awready = all_count != 16;
    assign wready = w_due && (BANKED || !(r_due && !prefer_write));
    assign bvalid = b_count != 0 && !b_early[31];
    assign bid = w_id[b_out];
    assign bresp = w_bad[b_out] ? SLVERR : 2'd0;
    wire [31:0] w_at = w_word[w_out] + {24'd0, w_beat};

    // First word and the words from there to the end of the memory decide whether a burst fits.
    wire [31:0] ar_word = araddr >> SHIFT;
    wire [31:0] aw_word = awaddr >> SHIFT;
    wire ar_bad = ar_word >= SIZE || SIZE - ar_word <= {24'd0, arlen};
    wire aw_bad = aw_word >= SIZE || SIZE - aw_word <= {24'd0, awlen};
    wire [31:0] ar_tail = araddr + ({24'd0, arlen} << SHIFT);
    wire [31:0] aw_tail = awaddr + ({24'd0, awlen} << SHIFT);
    wire ar_alien = arburst != INCR || arsize != BEAT_SIZE || araddr != ar_word << SHIFT
                    || ar_tail[31:12] != araddr[31:12];
    wire aw_alien = awburst != INCR || awsize != BEAT_SIZE || awaddr != aw_word << SHIFT
                    || aw_tail[31:12] != awaddr[31:12];
    wire ar_error = arvalid && arready && ar_alien;
    wire aw_error = awvalid && awready && aw_alien;
    wire w_error = w_go && wlast != w_end;

    // Nothing changes in a channel that is at rest: its clock stops, which makes it nearly free. One with banks is
    // refreshed, from the first burst on.
    reg awake;
    wire active = rst || arvalid || awvalid || wvalid || r_count != 0 || all_count != 0 || bucket != FULL || awake;
    wire ticks;
    clock_gate gate(.clk(clk), .enable(active), .gated(ticks));

    wire [31:0] filled = BANKED ? FULL : bucket + GAIN - ((r_new || w_go) ? COST : 32'd0);

    // ---- banks
    wire r_take, w_take;
    wire [31:0] first, length;
    generate
        if (BANKED) begin : banked
            dram_banks #(
                .LANES(LANES), .RATE(RATE_NUM), .BANKS(BANKS), .ROW_WORDS(ROW_WORDS), .ACCESS(ACCESS), .CL(CL),
                .CWL(CWL), .RCD(RCD), .RP(RP), .RAS(RAS), .RTP(RTP), .WR(WR), .WTR(WTR), .RTW(RTW), .RRD(RRD),
                .FAW(FAW), .REFI(REFI), .RFC(RFC), .BLOCK(BLOCK), .WINDOW(WINDOW), .TURN(TURN)
            ) banks (
                .clk(ticks), .rst(rst), .read(r_waits != 0), .read_word(r_word[r_next]), .read_len(r_len[r_next]),
                .write(w_waits != 0), .write_word(w_word[w_next]), .write_len(w_len[w_next]), .take_read(r_take),
                .take_write(w_take), .first(first), .length(length)
            );
        end else begin : ready
            assign r_take = 0;
            assign w_take = 0;
            assign first = 0;
            assign length = 0;
        end
    endgenerate
    // A burst is read from the buffer without a pause: not before its last words can follow.
    wire [31:0] r_first = now + first + length - {24'd0, r_len[r_next]} - 32'd1 + READ_WAIT - 32'd1;
    wire [31:0] w_last = now + first + length - 32'd1 + WRITE_WAIT;
    wire b_new = BANKED ? w_take : w_end;  // one more waits for its response

    integer lane;
    always @(posedge ticks) begin
        if (w_go && !w_bad[w_out]) begin
            // blocking, like whoever else sets it; `forget` runs while nothing is written
            /* verilator lint_off BLKSEQ */
            if (w_at >= reach) reach = w_at + 1;
            /* verilator lint_on BLKSEQ */
            if (&wstrb) mem[w_at] <= wdata;
            else begin
                for (lane = 0; lane < LANES; lane = lane + 1)
                    if (wstrb[lane]) mem[w_at][8*lane +: 8] <= wdata[8*lane +: 8];
            end
        end
    end

    always @(posedge ticks) begin
        if (rst) begin
            now <= 0;
            bucket <= FULL;
            r_in <= 0;
            r_out <= 0;
            r_count <= 0;
            r_beat <= 0;
            r_held <= 0;
            w_in <= 0;
            w_out <= 0;
            b_out <= 0;
            w_count <= 0;
            b_count <= 0;
            all_count <= 0;
            w_beat <= 0;
            prefer_write <= 0;
            protocol_error <= 0;
            awake <= 0;
            r_next <= 0;
            r_waits <= 0;
            w_next <= 0;
            w_waits <= 0;
        end else begin
            awake <= BANKED;
            now <= now + 1;
            bucket <= filled > FULL ? FULL : filled;
            if (r_new) prefer_write <= 1;
            else if (w_go) prefer_write <= 0;

            if (arvalid && arready) begin
                r_word[r_in] <= ar_word;
                if (!BANKED) r_time[r_in] <= now + READ_WAIT;
                r_len[r_in] <= arlen;
                r_id[r_in] <= arid;
                r_bad[r_in] <= ar_bad;
                r_in <= r_in + 1;
            end
            r_held <= rvalid && !rready;
            if (r_new && !rready) r_data <= rdata;
            if (r_go) r_beat <= rlast ? 8'd0 : r_beat + 8'd1;
            if (r_end) r_out <= r_out + 1;
            r_count <= r_count + {4'd0, arvalid && arready} - {4'd0, r_end};
            r_waits <= r_waits + {4'd0, BANKED && arvalid && arready} - {4'd0, r_take};
            if (r_take) begin
                r_time[r_next] <= r_first;
                r_next <= r_next + 1;
            end

            if (awvalid && awready) begin
                w_word[w_in] <= aw_word;
                w_len[w_in] <= awlen;
                w_id[w_in] <= awid;
                w_bad[w_in] <= aw_bad;
                w_in <= w_in + 1;
            end
            if (w_go) w_beat <= w_end ? 8'd0 : w_beat + 8'd1;
            if (w_end) begin
                if (!BANKED) w_time[w_out] <= now + WRITE_WAIT;
                w_out <= w_out + 1;
            end
            w_waits <= w_waits + {4'd0, BANKED && w_end} - {4'd0, w_take};
            if (w_take) begin
                w_time[w_next] <= w_last;
                w_next <= w_next + 1;
            end
            if (b_go) b_out <= b_out + 1;
            w_count <= w_count + {4'd0, awvalid && awready} - {4'd0, w_end};
            b_count <= b_count + {4'd0, b_new} - {4'd0, b_go};
            all_count <= all_count + {4'd0, awvalid && awready} - {4'd0, b_go};

            if (ar_error || aw_error || w_error) begin
                protocol_error <= 1;
                $display("DRAM %0d: time %0t: AXI protocol error (read address %0d, write address %0d, wlast %0d)",
                         ID, $time, ar_error, aw_error, w_error);
            end
        end
    end
endmodule
