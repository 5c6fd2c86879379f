// A link that does one thing wrong: what checkers are tested with.
//
// Between a sender (`from`) and a receiver (`to`); `kind`: 0 nothing, 1 drops a flit, 2 sends it twice, 3 lets the next of
// its channel overtake it, 4 flips its `bit_`, 5 flips `last`, 6 moves it to another channel, 7 lets nothing pass from there
// on. It happens once, to flit number `at` (from 0), or (1 to 6) to the first head from there on if `heads` is set.
module mutant #(
    parameter int VCS = 1,
    parameter int BITS = 63
) (
    input  wire            clk,
    input  wire  [31:0]    kind,
    input  wire  [31:0]    at,
    input  wire  [31:0]    bit_,
    input  wire            heads,
    input  wire            from_valid,
    input  wire  [BITS:0]  from_flit,
    input  wire  [1:0]     from_vc,
    output wire  [VCS-1:0] from_ready,
    output wire            to_valid,
    output wire  [BITS:0]  to_flit,
    output wire  [1:0]     to_vc,
    input  wire  [VCS-1:0] to_ready
);
    int unsigned count = 0;
    bit finished = 0, replay = 0, held = 0;
    logic [VCS-1:0] open = '0;
    logic [BITS:0] kept_flit = '0;
    logic [1:0] kept_vc = 0;

    wire passes = from_valid && from_ready[from_vc];
    wire now = !finished && kind != 0 && count >= at && !(heads && open[from_vc]);
    wire [BITS:0] flip = kind == 4 ? (BITS + 1)'(1) << bit_ : kind == 5 ? (BITS + 1)'(1) << BITS : '0;

    wire shut = kind == 7 && count >= at;
    assign from_ready = replay || shut ? '0 : to_ready;
    assign to_valid = replay ? (VCS == 1 || to_ready[kept_vc])
                    : from_valid && !shut && !(now && (kind == 1 || kind == 3));
    assign to_flit = replay ? kept_flit : from_flit ^ (now ? flip : '0);
    assign to_vc = replay ? kept_vc : now && kind == 6 ? 2'((int'(from_vc) + 1) % VCS) : from_vc;

    always @(posedge clk) begin
        if (replay && to_ready[kept_vc]) replay <= 0;
        if (passes) begin
            count <= count + 1;
            open[from_vc] <= !from_flit[BITS];
            if (now) begin
                finished <= 1;
                kept_flit <= from_flit;
                kept_vc <= from_vc;
                replay <= kind == 2;
                held <= kind == 3;
            end else if (held && from_vc == kept_vc) begin
                held <= 0;
                replay <= 1;
            end
        end
    end
endmodule
