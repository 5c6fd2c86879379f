// The banks of a DRAM channel and a controller that keeps rows open: when the data bus carries which burst. For
// simulation, inside dram_model.v; `sched/model/banks.py` plays the same.
//
// Words are stored as row : bank : column, so that a run of words goes through one row after the other, each in the next
// bank. A burst lies in one row. Cycles count from the first that a burst is offered in; all times are in cycles, and
// named as in data sheets. In each cycle the controller does one of these:
//
//   refresh  One is due every REFI cycles. In that cycle PRECHARGE closes each open bank, or later, as soon as it may;
//            REFRESH follows the last of these after RP, and RFC after it banks can be activated again.
//   take     Otherwise, if the data bus is reserved for at most WINDOW cycles more, the first read or write that waits:
//            the kind of the burst before, unless TURN of that kind have gone since the last turn; the other if none of
//            its kind waits. So a turn waits for TURN bursts at most.
//
// A burst that is taken in cycle t reserves, in the order in which bursts are taken:
//
//   row hit       its bank has its row open: the column command can go in t
//   row miss      its bank is closed: ACTIVATE in t, the column command RCD later
//   row conflict  another row is open: PRECHARGE in t, ACTIVATE RP later, the column command RCD after that
//
// each as soon as the bank may: ACTIVATE not before RRD after the latest and FAW after the fourth latest of the channel,
// PRECHARGE not before RAS after ACTIVATE, RTP after the last read, WR after the last data written. Data follow the
// column command after CL (read) or CWL (write), once the bus is free: behind the last data, RTW more from read to write,
// WTR + CL more from write to read. They take BLOCK cycles for each ACCESS bytes that the burst touches, all together
// rounded up; bursts of one kind follow each other without a gap. Commands have a bus of their own, without contention.
//
// `take_read`, `take_write`: the offered burst is taken in this cycle; its data begin on the bus `first` cycles later
// and take `length`. `hits`, `misses`, `conflicts`, `turns` and `refreshes` count since reset.

module dram_banks #(
    parameter LANES = 16,
    parameter RATE = 16,
    parameter BANKS = 8,
    parameter ROW_WORDS = 256,
    parameter ACCESS = 64,
    parameter [63:0] CL = 1,
    parameter [63:0] CWL = 1,
    parameter [63:0] RCD = 1,
    parameter [63:0] RP = 1,
    parameter [63:0] RAS = 1,
    parameter [63:0] RTP = 1,
    parameter [63:0] WR = 1,
    parameter [63:0] WTR = 1,
    parameter [63:0] RTW = 1,
    parameter [63:0] RRD = 1,
    parameter [63:0] FAW = 1,
    parameter [63:0] REFI = 1000,
    parameter [63:0] RFC = 1,
    parameter [63:0] BLOCK = 1,
    parameter [63:0] WINDOW = 1,
    parameter [7:0] TURN = 8
) (
    input  wire        clk,
    input  wire        rst,
    input  wire        read,
    input  wire [31:0] read_word,
    input  wire [7:0]  read_len,
    input  wire        write,
    input  wire [31:0] write_word,
    input  wire [7:0]  write_len,
    output wire        take_read,
    output wire        take_write,
    output wire [31:0] first,
    output wire [31:0] length
);
    localparam BITS = BANKS > 1 ? $clog2(BANKS) : 1;

    reg [63:0] now, bus, due, rrd_ok;
    reg [63:0] faw_ok [0:3];
    reg [1:0]  oldest;
    reg        last;  // the burst before was a write
    reg [7:0]  run;   // of that kind since the last turn, at most TURN
    reg [BANKS-1:0] open;
    reg [31:0] row    [0:BANKS-1];
    reg [63:0] col_ok [0:BANKS-1];
    reg [63:0] pre_ok [0:BANKS-1];
    reg [63:0] act_ok [0:BANKS-1];
    reg [31:0] hits, misses, conflicts, turns, refreshes;

    // ---- what is done in this cycle
    wire refresh = now >= due;
    wire writes = (read && write) ? last ^ (run == TURN) : write;
    wire take = (read || write) && !refresh && bus <= now + WINDOW;
    assign take_read = take && !writes;
    assign take_write = take && writes;

    // ---- the burst
    wire [31:0] word = writes ? write_word : read_word;
    wire [31:0] tail = word + {24'd0, writes ? write_len : read_len};
    wire [31:0] blocks = (tail * LANES + LANES - 1) / ACCESS - word * LANES / ACCESS + 1;
    wire [31:0] line = word / ROW_WORDS;
    wire [31:0] its_row = line / BANKS;
    wire [31:0] number = line % BANKS;
    wire [BITS-1:0] bank = number[BITS-1:0];
    assign length = (blocks * ACCESS + RATE - 1) / RATE;

    wire hit = open[bank] && row[bank] == its_row;
    wire [63:0] pre_at = pre_ok[bank] > now ? pre_ok[bank] : now;
    wire [63:0] free_at = open[bank] ? pre_at + RP : act_ok[bank] > now ? act_ok[bank] : now;
    wire [63:0] spaced_at = rrd_ok > faw_ok[oldest] ? rrd_ok : faw_ok[oldest];
    wire [63:0] act_at = free_at > spaced_at ? free_at : spaced_at;
    wire [63:0] col_at = !hit ? act_at + RCD : col_ok[bank] > now ? col_ok[bank] : now;
    wire [63:0] data_at = col_at + (writes ? CWL : CL);
    wire turn = writes != last;
    wire [63:0] bus_at = bus + (!turn ? 64'd0 : writes ? RTW : WTR + CL);
    wire [63:0] begin_at = data_at > bus_at ? data_at : bus_at;
    wire [63:0] end_at = begin_at + {32'd0, length};
    wire [63:0] wait_for = begin_at - now;
    assign first = wait_for[31:0];
    wire [63:0] used_at = writes ? end_at + WR : end_at - CL - BLOCK + RTP;
    wire [63:0] held_at = hit ? pre_ok[bank] : act_at + RAS;

    // ---- a refresh: when all banks can be closed
    genvar b;
    generate
        for (b = 0; b < BANKS; b = b + 1) begin : each
            wire [63:0] own = !open[b] ? act_ok[b] : (pre_ok[b] > now ? pre_ok[b] : now) + RP;
            wire [63:0] all;
            wire [63:0] so_far;
            if (b == 0) begin : lowest
                assign so_far = now;
            end else begin : further
                assign so_far = each[b-1].all;
            end
            assign all = own > so_far ? own : so_far;
        end
    endgenerate
    wire [63:0] fresh_at = each[BANKS-1].all + RFC;

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            now <= 0;
            bus <= 0;
            due <= REFI;
            rrd_ok <= 0;
            for (i = 0; i < 4; i = i + 1) faw_ok[i] <= 0;
            oldest <= 0;
            last <= 0;
            run <= 0;
            open <= 0;
            for (i = 0; i < BANKS; i = i + 1) begin
                col_ok[i] <= 0;
                pre_ok[i] <= 0;
                act_ok[i] <= 0;
                row[i] <= 0;
            end
            hits <= 0;
            misses <= 0;
            conflicts <= 0;
            turns <= 0;
            refreshes <= 0;
        end else begin
            now <= now + 1;
            if (refresh) begin
                due <= due + REFI;
                open <= 0;
                for (i = 0; i < BANKS; i = i + 1) act_ok[i] <= fresh_at;
                refreshes <= refreshes + 1;
            end
            if (take) begin
                bus <= end_at;
                last <= writes;
                run <= turn ? 8'd1 : run == TURN ? run : run + 8'd1;
                turns <= turns + {31'd0, turn};
                pre_ok[bank] <= used_at > held_at ? used_at : held_at;
                if (hit) hits <= hits + 1;
                else begin
                    if (open[bank]) conflicts <= conflicts + 1;
                    else misses <= misses + 1;
                    open[bank] <= 1;
                    row[bank] <= its_row;
                    col_ok[bank] <= act_at + RCD;
                    rrd_ok <= act_at + RRD;
                    faw_ok[oldest] <= act_at + FAW;
                    oldest <= oldest + 1;
                end
            end
        end
    end
endmodule
