// Sums in an ECP5's carry chains, with what switches an operand off in the same LUTs.

// sum = x + (c ? y : 0), modulo 2^WIDTH. Each bit of a chain (CCU2C has two) adds two functions of x, y and c, and the
// carry is x's where they are alike: INIT's upper byte is the sum without carry of (c, y, x), its lower byte is x.
// With INIT 95AA and carry_in: sum = x - (c ? y : 0). With INIT A6AA: sum = x + (c ? 0 : y).
module switched_sum #(parameter WIDTH = 2, parameter [15:0] INIT = 16'h6AAA)
  (input [WIDTH-1:0] x, input [WIDTH-1:0] y, input c, input carry_in, output [WIDTH-1:0] sum);
  localparam PAIRS = (WIDTH + 1) / 2;
  wire [2*PAIRS-1:0] first, second, result;
  wire [PAIRS:0] carry;
  assign first = x;
  assign second = y;
  assign carry[0] = carry_in;
  assign sum = result[WIDTH-1:0];
  genvar i;
  generate for (i = 0; i < PAIRS; i = i + 1) begin : pair
    CCU2C #(.INIT0(INIT), .INIT1(INIT), .INJECT1_0("NO"), .INJECT1_1("NO")) bits (
      .CIN(carry[i]),
      .A0(first[2*i]), .B0(second[2*i]), .C0(c), .D0(1'b1), .S0(result[2*i]),
      .A1(first[2*i+1]), .B1(second[2*i+1]), .C1(c), .D1(1'b1), .S1(result[2*i+1]),
      .COUT(carry[i+1])
    );
  end endgenerate
endmodule

// Y = A * B of signed bytes in 88 LUTs, for arrays that have more products than the FPGA multipliers: a row for each
// bit of B, in two halves that are added at last.
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
  switched_sum #(.WIDTH(9)) row1 (.x({low0[8], low0[8:1]}), .y(a), .c(B[1]), .carry_in(1'b0), .sum(low1));
  switched_sum #(.WIDTH(9)) row2 (.x({low1[8], low1[8:1]}), .y(a), .c(B[2]), .carry_in(1'b0), .sum(low2));
  switched_sum #(.WIDTH(9)) row3 (.x({low2[8], low2[8:1]}), .y(a), .c(B[3]), .carry_in(1'b0), .sum(low3));
  switched_sum #(.WIDTH(9)) row5 (.x({high0[8], high0[8:1]}), .y(a), .c(B[5]), .carry_in(1'b0), .sum(high1));
  switched_sum #(.WIDTH(9)) row6 (.x({high1[8], high1[8:1]}), .y(a), .c(B[6]), .carry_in(1'b0), .sum(high2));
  switched_sum #(.WIDTH(9), .INIT(16'h95AA))
    row7 (.x({high2[8], high2[8:1]}), .y(a), .c(B[7]), .carry_in(1'b1), .sum(high3));
  wire signed [11:0] low = {low3, low2[0], low1[0], low0[0]};
  wire signed [11:0] high = {high3, high2[0], high1[0], high0[0]};
  wire signed [11:0] upper = high + $signed(low[11:4]);
  assign Y = {upper, low[3:0]};
endmodule
