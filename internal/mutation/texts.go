package main

// texts are about how text that others wrote is shown.
var texts = []mutation{
	{
		"a name is cut without a word", "internal/inbox/text.go",
		`n.cut = len(text) - shownBytes(runs)`, `n.cut = 0`,
		"internal/inbox", "^TestLongNames$",
	},
	{
		"a character that is drawn as nothing is shown as it is", "internal/plain/plain.go",
		`unicode.Other_Default_Ignorable_Code_Point, blank)`, `unicode.Other_Default_Ignorable_Code_Point)`,
		"internal/plain", "^TestHidden$",
	},
	{
		"a space at the end of a name is not shown", "internal/plain/plain.go",
		`if Hidden(r) || blanks[at] ||`, `if Hidden(r) || blanks[at] && false ||`,
		"internal/approval/api", "^TestExactName$",
	},
	{
		"a space at the end of a name is not shown in the inbox", "internal/inbox/text.go",
		`isHidden(r) || b.blank[before+at] ||`, `isHidden(r) ||`,
		"internal/inbox", "^TestNamesWithSpaces$",
	},
	{
		"an answer of the API hides characters", "internal/approval/api/answer.go",
		`return []byte(plain.Escape(string(text))), err`, `_ = plain.Escape; return text, err`,
		"internal/approval/api", "^TestExactName$",
	},
	{
		"a name that looks like another is not marked", "internal/plain/alike.go",
		`if Odd(r) && !Hidden(r) {`, `if Odd(r) && r == 0 {`,
		"cmd/thoughtgate", "^TestAlike$",
	},
	{
		"a letter of a rare script is not marked", "internal/plain/letters.go",
		`unicode.Bopomofo, unicode.Common) ||`, `unicode.Bopomofo, unicode.Common, unicode.Myanmar) ||`,
		"internal/plain", "^TestMixed$",
	},
	{
		"a small capital is not marked", "internal/plain/letters.go",
		`case compatible(r) || isRareLatin(r):`, `case compatible(r):`,
		"internal/plain", "^TestMixed$",
	},
	{
		"a sign that looks like a slash is not marked", "internal/plain/mixed.go",
		`marks = signsIn(token, offset)`, `_ = signsIn`,
		"internal/inbox", "^TestValuesThatLookAlike$",
	},
	{
		"a sign that looks like a slash is not marked beside letters of another script", "internal/plain/signs.go",
		`return s.isBetween(next) || s.isBesideLetter(next) || s.isAtEdge(r, next)`, `return s.isBetween(next) || s.isAtEdge(r, next)`,
		"internal/plain", "^TestSignsThatLookAlike$",
	},
	{
		"a Greek letter in an address passes for one of a formula", "internal/plain/formulas.go",
		`return !isDotted(token) && `, `return `,
		"internal/plain", "^TestMixed$",
	},
	{
		"a call that does not fit the screen is approved without its cautions", "cmd/thoughtgate/approvals_decide.go",
		`q.text.cautions(around) +`, `"" +`,
		"cmd/thoughtgate", "^TestQuestionRepeatsTheCautions$",
	},
	{
		"a letter of another script in a value is not marked", "internal/inbox/arguments.go",
		"m.mixed = mixedAt(text[:boundary(text, m.most+longText)]) // more is not shown", "_ = m.mixed",
		"internal/inbox", "^TestValuesThatLookAlike$",
	},
	{
		"a letter of another script in a value is not reported", "internal/casefile/view.go",
		`a.Cautions = Cautions{a.Hints.Risk(), Alike(a)}`, `a.Cautions = Cautions{a.Hints.Risk(), nil}`,
		"internal/approval/api", "^TestWarnings$",
	},
	{
		"the rest of a long line begins where names do", "cmd/thoughtgate/lines.go",
		`lines = append(lines, next+line[:size])`, `lines = append(lines, line[:size])`,
		"cmd/thoughtgate", "^TestMargin$",
	},
	{
		"a terminal breaks the lines of a call", "cmd/thoughtgate/screen.go",
		`if s.columns > 0 && text != "" {`, `if s.columns < 0 {`,
		"cmd/thoughtgate", "^TestQuestionTellsTheCall$",
	},
	{
		"a call that does not fit on the screen is not named in the question", "cmd/thoughtgate/approvals_decide.go",
		`row("warning", q.text.shortWarning(a)) + q.text.summary(a) + allows`, `row("warning", q.text.shortWarning(a)) + allows`,
		"cmd/thoughtgate", "^TestQuestionTellsTheCall$",
	},
	{
		"an answer counts for a view that was never on the screen", "cmd/thoughtgate/tui.go",
		`case p != nil && !p.sent && p.shown != msg.now.ShownDigest:`, `case false:`,
		"cmd/thoughtgate", "^TestPromptEndsWithItsView$",
	},
}
