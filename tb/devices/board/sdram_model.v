// SDRAM with a bus of 16 bits, for simulation: 4 banks of 8,192 rows of 512 columns. It knows what data sheets know and
// nothing of a controller: any command that comes too early, or that its state does not allow, is a violation, which is
// said and ends the simulation. Times are those of Micron's MT48LC16M16A2-75, in picoseconds. Works in Verilator 5 and
// Icarus.
//
// All inputs are taken at the rising edge of `clk`, whose period is PERIOD. Only CAS latency 2 and bursts of a single
// column are understood. Of a column that is read at an edge, `q` has the data from behind the next edge on for one
// cycle; `driving` says so. What has never been written is unknown.

module sdram_model #(
    parameter PERIOD = 33333,
    parameter START = 100_000_000,
    parameter RCD = 20_000,
    parameter RP = 20_000,
    parameter RAS = 44_000,
    parameter RC = 66_000,
    parameter RRD = 15_000,
    parameter RFC = 66_000,
    parameter WR = 15_000,
    parameter REFI = 7_812_500
) (
    input  wire        clk,
    input  wire        cke,
    input  wire        cs_n,
    input  wire        ras_n,
    input  wire        cas_n,
    input  wire        we_n,
    input  wire [1:0]  ba,
    input  wire [12:0] a,
    input  wire [1:0]  dqm,
    input  wire [15:0] d,
    input  wire        drives,  // the board drives the bus, with `d`
    output reg  [15:0] q,
    output reg         driving
);
    localparam [63:0] TICK = PERIOD;
    localparam [63:0] LATE = 64'd9 * REFI;  // eight refreshes may be put off
    localparam [2:0] MODE = 0, REFRESH = 1, PRECHARGE = 2, ACTIVATE = 3, WRITE = 4, READ = 5, NOTHING = 7;

    reg [15:0] cells [0:(1 << 24) - 1];
    reg [63:0] now;  // at this edge
    reg [3:0]  open;
    reg [12:0] row [0:3];
    reg [63:0] opened [0:3], closed [0:3], written [0:3];
    reg [63:0] any_opened, refreshed, mode_at, first_late;
    reg [3:0]  refreshes;  // before the mode was set, at most 15
    reg        precharged, ready;
    reg [15:0] next_q;
    reg        next_driving;
    reg [31:0] violations;

    wire [2:0] command = cs_n ? NOTHING : {ras_n, cas_n, we_n};
    wire [23:0] place = {row[ba], ba, a[8:0]};

    integer i;
    initial begin
        now = 0; open = 0; any_opened = 0; refreshed = 0; mode_at = 0; refreshes = 0; precharged = 0; ready = 0;
        next_driving = 0; driving = 0; violations = 0; q = 0; next_q = 0;
        first_late = LATE;
        for (i = 0; i < 4; i = i + 1) begin
            row[i] = 0; opened[i] = 0; closed[i] = 0; written[i] = 0;
        end
    end

    task wrong(input [8*40-1:0] what);
        begin
            $fdisplay(32'h8000_0002, "SDRAM: %0s at %0d ps, bank %0d", what, now, ba);
            violations = violations + 1;
            $finish;
        end
    endtask

    // Less than `least` has gone since `since`.
    function early(input [63:0] since, input [63:0] least);
        early = since != 0 && now - since < least;
    endfunction

    task close(input integer bank);
        begin
            if (open[bank]) begin
                if (early(opened[bank], RAS)) wrong("PRECHARGE before RAS");
                if (early(written[bank], WR)) wrong("PRECHARGE before WR");
                closed[bank] = now;
            end
            open[bank] = 0;
        end
    endtask

    always @(posedge clk) begin
        q <= next_q;
        driving <= next_driving;
        next_driving <= 0;
        if (drives && driving) wrong("both drive the bus");
        if (ready && now > first_late) wrong("rows are not refreshed");
        if (cke && command != NOTHING) begin
            if (early(mode_at, 2 * TICK)) wrong("a command before MRD");
            if (early(refreshed, RFC)) wrong("a command before RFC");
            if (now < START) wrong("a command before START");
            if (!ready && command[2:0] >= ACTIVATE) wrong("an access before the mode is set");
        end
        if (cke) case (command)
            ACTIVATE: begin
                if (open[ba]) wrong("ACTIVATE of an open bank");
                if (early(closed[ba], RP)) wrong("ACTIVATE before RP");
                if (early(opened[ba], RC)) wrong("ACTIVATE before RC");
                if (early(any_opened, RRD)) wrong("ACTIVATE before RRD");
                open[ba] = 1; row[ba] = a; opened[ba] = now; any_opened = now;
            end
            READ, WRITE: begin
                if (!open[ba]) wrong("an access to a closed bank");
                if (early(opened[ba], RCD)) wrong("an access before RCD");
                if (a[10]) wrong("an access with PRECHARGE");
                if (command == READ) begin
                    if (dqm != 0) wrong("READ with a mask");
                    next_q <= cells[place];
                    next_driving <= 1;
                end else begin
                    if (!drives) wrong("WRITE without data");
                    if (!dqm[0]) cells[place][7:0] = d[7:0];
                    if (!dqm[1]) cells[place][15:8] = d[15:8];
                    written[ba] = now;
                end
            end
            PRECHARGE: begin
                if (a[10]) begin
                    for (i = 0; i < 4; i = i + 1) close(i);
                    precharged = 1;
                end else close({30'd0, ba});
            end
            REFRESH: begin
                if (!precharged || open != 0) wrong("REFRESH of an open bank");
                for (i = 0; i < 4; i = i + 1) if (early(closed[i], RP)) wrong("REFRESH before RP");
                refreshed = now;
                // each one pays for an interval, those put off too, and none in advance
                first_late = !ready ? now + LATE : first_late + REFI > now + LATE ? now + LATE : first_late + REFI;
                if (refreshes != 15) refreshes = refreshes + 1;
            end
            MODE: begin
                if (open != 0) wrong("MODE with an open bank");
                if (refreshes < 2) wrong("MODE before two refreshes");
                if (a != 13'h020) wrong("a mode that is not understood");
                ready = 1; mode_at = now;
            end
            default: ;
        endcase
        now = now + TICK;
    end
endmodule
