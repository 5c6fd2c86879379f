// An integrated clock gating cell: `enable` is sampled while the clock is low, so that `gated` has whole pulses only.

module clock_gate (
    input  wire clk,
    input  wire enable,
    output wire gated
);
    reg open = 1;
    always @(negedge clk) open <= enable;
    assign gated = clk & open;
endmodule
