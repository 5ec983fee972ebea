package main

// shownMutations are about what approvers are shown of tools that have changed, and of
// batches.
var shownMutations = []mutation{
	{
		"how an approved tool is defined is not kept", "internal/approval/decide.go",
		`d.rememberTools(ctx, after)`, `_ = d.rememberTools`,
		approvalPkg, "^TestChangedAfterManyCalls$",
	},
	{
		"what an earlier version approved is forgotten", "internal/approval/housekeeping.go",
		`h.indexTools, h.trim,`, `h.trim,`,
		approvalPkg, "^TestChangedSinceEarlierVersion$",
	},
	{
		"a record that cannot be read counts as none", "internal/casefile/changed.go",
		`unknown = true`, `unknown = false`,
		approvalPkg, "^TestChangedUnknown$",
	},
	{
		"an earlier approval replaces a later one", "internal/precedent/precedent.go",
		`case other.At.After(a.At) || other == a:`, `case other == a:`,
		"internal/precedent", "^TestKeep$",
	},
	{
		"the journal is read from its beginning", "internal/precedent/index.go",
		`after := max(ends.Anchor.Seq, at.Left-int64(most))`, `after := ends.Anchor.Seq; at.Left = min(at.Left, after+int64(most))`,
		"internal/precedent", "^TestIndexNewestFirst$",
	},
	{
		"an earlier approval with a record counts more than a later one without", "internal/casefile/changed.go",
		`a.At.After(last[d].At)`, `last[d].At.IsZero()`,
		approvalPkg, "^TestChangedSinceApprovalWithoutRecord$",
	},
	{
		"a call that nobody looked at is a precedent", "internal/casefile/changed.go",
		`t.Approval.Grant() == "" && `, ``,
		approvalPkg, "^TestChangedDespiteStandingApproval$",
	},
	{
		"a tool in a batch is not compared", "internal/casefile/changed.go",
		`for i, m := range f.ToolsInBatch {`, `for i, m := range f.ToolsInBatch[:0] {`,
		approvalPkg, "^TestBatchChanged$",
	},
	{
		"the description of a tool in a batch is not shown", "internal/conversation/wholebatch.go",
		`approval.Tool{Description: tool.Description, Annotations`, `approval.Tool{Annotations`,
		mcphttpPkg, "^TestWholeBatchDescribed$",
	},
	{
		"what is not known of a call in a batch counts as harmless", "internal/casefile/facts.go",
		`unset = true`, `unset = false`,
		approvalPkg, "^TestBatchRisk$",
	},
	{
		"the metadata of a call in a batch is not redacted", "internal/casefile/redact.go",
		`append(path{"params", "_meta"}, p...)`, `append(path{"params", "arguments"}, p...)`,
		approvalPkg, "^TestBatchRedacted$",
	},
	{
		"a secret that has the name of another method's subject is shown", "internal/casefile/redact.go",
		`(name == r.subject || `, `(name == "name" || name == "uri" || `,
		approvalPkg, "^TestBatchRedactedByMethod$",
	},
	{
		"the results of a batch are not redacted", "internal/casefile/result.go",
		`append(path{"responses", "result"}, p...)`, `append(path{"result"}, p...)`,
		approvalPkg, "^TestBatchRedacted$",
	},
}
