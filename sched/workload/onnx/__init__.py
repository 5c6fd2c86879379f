"""ONNX in and out: integer models are read and written (`reader`, `writer`), float ones are quantised (`quantise`).

The file of a network is an integer ONNX model that ONNX Runtime executes to the last bit as the chip does.

A file is read node by node (`lowering`). Each operator is one function of a context (what is known of the graph, and
the layers that are built so far), the node and its attributes; it adds layers, or raises `errors.Refused` with the
reason, and all refusals come in one error. Float models: tables in `operators`, what they build with in `building`,
rewriting passes before in `passes`. Integer models: `integers`.

**To add an operator**, write a function in the file of its family in `operators`, and its name in the file's table:

    def cumulative_sum(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
        view = settle(context, node.input[0])  # what the operand is; `context.constant` for one that must be constant
        if attributes.get("reverse"):
            raise Refused("reverse; export the model without it")  # the reason, and the mend
        emit_fully_connected(context, node, np.tril(np.ones((view.shape[-1],) * 2)), None)

    OPERATORS: dict[str, Operator] = {"CumSum": cumulative_sum, ...}

What only moves elements calls `context.move` with their places; what adds a layer, `context.emit` or a function of
`building`, and says with `context.keep_view` how the result lies. A function of single elements needs no code: its
name in `pointwise.UNARY`. `or_table` around a function: an operator that the layer before may absorb, else a table.
A package outside of the repository registers the same function as an entry point of `meshloom.operators`, named as
the operator, with its domain unless standard (`com.example.CumSum`); it does not replace what is here.

**To add a pattern of several nodes** (RMSNorm, rotary embeddings, grouped attention), write a pass that puts one node
in their place, as `passes.standardisation` does, and an operator for that node. **To add a rewriting pass**, write a
function from a `CheckedModel` to one with other nodes (`CheckedModel.with_nodes`), which compute the same outputs, and
its name in `passes.table.PASSES`.
"""
