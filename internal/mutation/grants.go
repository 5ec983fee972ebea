package main

// grantMutations are about standing approvals.
var grantMutations = []mutation{
	{
		"a pinned argument may have any value", "internal/grantstore/grant.go",
		`if slices.Contains(s.Free, name) {`, `if len(s.Free) > 0 {`,
		"internal/grantstore", "^TestGrantScope",
	},
	{
		"a free argument may have any type", "internal/grantstore/grant.go",
		`how, value = "free", json.RawMessage(typeOf(value))`, `how, value = "free", nil`,
		"internal/grantstore", "^TestGrantScope",
	},
	{
		"a grant covers calls with more arguments", "internal/grantstore/grant.go",
		`b, err := appendCanonical(b, s.Call.Also)`, `b, err := appendCanonical(b, "")`,
		approvalPkg, "^TestGrantCoversNothingElse$",
	},
	{
		"a grant that nobody gave lets a call run", "internal/grantstore/grant.go",
		`if wrong := g.check(); wrong != "" {
		return task.Admit{}`, `if wrong := g.check(); false {
		return task.Admit{}`,
		"internal/grantstore", "^TestAdmission$",
	},
	{
		"a revoked grant is used", "internal/grantstore/grant.go",
		`case g.Revoked != nil:`, `case false:`,
		approvalPkg, "^TestGrantPolicy$",
	},
	{
		"a grant is used after its time", "internal/grantstore/grant.go",
		`case !now.Before(earliest(g.Until, g.GivenAt.Add(l.Longest))):`, `case false:`,
		approvalPkg, "^TestGrantPolicy$",
	},
	{
		"a grant is used too often", "internal/grantstore/grant.go",
		`case len(g.Uses) >= min(g.MaxUses, l.Uses):`, `case false:`,
		approvalPkg, "^TestGrantLastUse$",
	},
	{
		"one approver of several gives a grant", "internal/grantstore/grant.go",
		`if len(all) == 0 || slices.ContainsFunc(all, func(d task.Decision) bool { return d.Gives == nil }) {`,
		`all = slices.DeleteFunc(slices.Clone(all), func(d task.Decision) bool { return d.Gives == nil }); if len(all) == 0 {`,
		approvalPkg, "^TestGrantQuorum$",
	},
	{
		"a requester gives a grant to the own agent", "internal/approval/grant.go",
		`case isRequester(t, who):`, `case false:`,
		approvalPkg, "^TestGrantRefused$",
	},
	{
		"a redacted argument is left free", "internal/casefile/grant.go",
		`if !redacted[name] {`, `if true {`,
		approvalPkg, "^TestGrantRefused$",
	},
	{
		"a grant is given though the workflow allows none", "internal/casefile/grant.go",
		`case !known || terms.Grants.Uses < 1 || terms.Grants.Longest < time.Second:`, `case !known:`,
		approvalPkg, "^TestGrantRefused$",
	},
	{
		"a grant does not look at the definition of the tool now", "internal/approval/grantuse.go",
		`if now.Digest != c.Tool.Digest {`, `if false {`,
		approvalPkg, "^TestGrantCoversNothingElse$",
	},
	{
		"a grant of people who may no longer approve is used", "internal/approval/grantuse.go",
		`!gs.covers(g, t) || !others.satisfied(`, `!gs.covers(g, t) || false && !others.satisfied(`,
		approvalPkg, "^TestGrantPolicy$",
	},
	{
		"metadata that no approver saw is sent", "internal/approval/grantuse.go",
		`if g.Meta[name] != sha256.Sum256(value) {`, `if false && g.Meta[name] != sha256.Sum256(value) {`,
		approvalPkg, "^TestGrantPassesOverMetadata$",
	},
	{
		"a task that a grant has not counted runs", "internal/approval/grantuse.go",
		`case !counted || !gs.covers(g, t):`, `case !counted && false || !gs.covers(g, t):`,
		approvalPkg, "^TestGrantForged$",
	},
	{
		"a use is given back though the call may have been made", "internal/approval/grantuse.go",
		`if !notCreated {`, `if !notCreated && false {`,
		approvalPkg, "^TestGrantCountedButNotMade$",
	},
	{
		"a gate with another configuration makes a grant wider", "internal/approval/grant.go",
		`if gs.cfg.Mixed {`, `if false {`,
		approvalPkg, "^TestGrantOfMixedGates$",
	},
}
