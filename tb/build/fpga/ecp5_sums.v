// Sums in an ECP5's carry chains. A CCU2C adds two bits, each by a LUT whose two functions INIT has: its upper byte is
// the sum without carry of (C, B, A), its lower byte what the carry is where A and B are alike, here A itself.
// nextpnr gives a carry that comes from no chain a CCU2C of its own; here it enters by a chain's first bit.

// sum = x + (c ? y : 0) + carry_in, modulo 2^WIDTH. With INIT 95AA and carry_in = 1: sum = x - (c ? y : 0). With INIT
// A6AA: sum = x + (c ? 0 : y) + carry_in. With INIT 96AA: sum = x + (c ? ~y : y) + carry_in. `last`: the last carry.
module switched_sum #(parameter WIDTH = 2, parameter [15:0] INIT = 16'h6AAA)
  (input [WIDTH-1:0] x, input [WIDTH-1:0] y, input c, input carry_in, output [WIDTH-1:0] sum, output last);
  localparam PAIRS = (WIDTH + 3) / 2;
  wire [2*PAIRS-1:0] first, second, result;
  wire [PAIRS-1:0] carry;
  assign first = {x, carry_in};
  assign second = {y, 1'b1};
  assign sum = result[WIDTH:1];
  assign last = result[WIDTH+1];
  genvar i;
  generate for (i = 0; i < PAIRS; i = i + 1) begin : pair
    localparam [15:0] LOW = i == 0 ? 16'h000A : 2 * i == WIDTH + 1 ? 16'h0000 : INIT;
    localparam [15:0] HIGH = 2 * i + 1 > WIDTH ? 16'h0000 : INIT;
    if (i == 0)
      CCU2C #(.INIT0(LOW), .INIT1(HIGH), .INJECT1_0("NO"), .INJECT1_1("NO")) bits (
        .A0(first[0]), .B0(1'b1), .C0(1'b1), .D0(1'b1), .S0(result[0]),
        .A1(first[1]), .B1(second[1]), .C1(c), .D1(1'b1), .S1(result[1]),
        .COUT(carry[0])
      );
    else
      CCU2C #(.INIT0(LOW), .INIT1(HIGH), .INJECT1_0("NO"), .INJECT1_1("NO")) bits (
        .CIN(carry[i-1]),
        .A0(first[2*i]), .B0(second[2*i]), .C0(c), .D0(1'b1), .S0(result[2*i]),
        .A1(first[2*i+1]), .B1(second[2*i+1]), .C1(c), .D1(1'b1), .S1(result[2*i+1]),
        .COUT(carry[i])
      );
  end endgenerate
endmodule

// Yosys' sums and differences of more bits than LUTs are better for.
(* techmap_celltype = "$alu" *)
module sum_in_carry_chain (A, B, CI, BI, X, Y, CO);
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter A_WIDTH = 1;
  parameter B_WIDTH = 1;
  parameter Y_WIDTH = 1;
  (* force_downto *) input [A_WIDTH-1:0] A;
  (* force_downto *) input [B_WIDTH-1:0] B;
  input CI, BI;
  (* force_downto *) output [Y_WIDTH-1:0] X, Y, CO;
  wire _TECHMAP_FAIL_ = Y_WIDTH <= 4;
  (* force_downto *) wire [Y_WIDTH-1:0] a, b;
  \$pos #(.A_SIGNED(A_SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(Y_WIDTH)) all_of_a (.A(A), .Y(a));
  \$pos #(.A_SIGNED(B_SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)) all_of_b (.A(B), .Y(b));
  wire last;
  switched_sum #(.WIDTH(Y_WIDTH), .INIT(16'h96AA)) chain (.x(a), .y(b), .c(BI), .carry_in(CI), .sum(Y), .last(last));
  assign X = a ^ b ^ {Y_WIDTH{BI}};
  // a carry within the sum is what the next bit has beside its operands
  assign CO = {last, Y[Y_WIDTH-1:1] ^ X[Y_WIDTH-1:1]};
endmodule

// Y = A * B of signed bytes, for arrays that have more products than the FPGA multipliers: a row for each bit of B, in
// two halves that are added at last.
(* techmap_celltype = "$mul" *)
module product_in_rows (A, B, Y);
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter A_WIDTH = 1;
  parameter B_WIDTH = 1;
  parameter Y_WIDTH = 1;
  input [A_WIDTH-1:0] A;
  input [B_WIDTH-1:0] B;
  output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = !A_SIGNED || !B_SIGNED || A_WIDTH != 8 || B_WIDTH != 8 || Y_WIDTH != 16;
  wire [8:0] a = {A[7], A};
  wire [8:0] low0 = a & {9{B[0]}};
  wire [8:0] high0 = a & {9{B[4]}};
  wire [8:0] low1, low2, low3, high1, high2, high3;
  wire [11:0] upper;
  switched_sum #(.WIDTH(9)) row1 (.x({low0[8], low0[8:1]}), .y(a), .c(B[1]), .carry_in(1'b0), .sum(low1));
  switched_sum #(.WIDTH(9)) row2 (.x({low1[8], low1[8:1]}), .y(a), .c(B[2]), .carry_in(1'b0), .sum(low2));
  switched_sum #(.WIDTH(9)) row3 (.x({low2[8], low2[8:1]}), .y(a), .c(B[3]), .carry_in(1'b0), .sum(low3));
  switched_sum #(.WIDTH(9)) row5 (.x({high0[8], high0[8:1]}), .y(a), .c(B[5]), .carry_in(1'b0), .sum(high1));
  switched_sum #(.WIDTH(9)) row6 (.x({high1[8], high1[8:1]}), .y(a), .c(B[6]), .carry_in(1'b0), .sum(high2));
  switched_sum #(.WIDTH(9), .INIT(16'h95AA))
    row7 (.x({high2[8], high2[8:1]}), .y(a), .c(B[7]), .carry_in(1'b1), .sum(high3));
  switched_sum #(.WIDTH(12))
    halves (.x({high3, high2[0], high1[0], high0[0]}), .y({{4{low3[8]}}, low3[8:1]}), .c(1'b1), .carry_in(1'b0), .sum(upper));
  assign Y = {upper, low3[0], low2[0], low1[0], low0[0]};
endmodule
