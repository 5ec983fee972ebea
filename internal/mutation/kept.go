package main

// kept are changes of how answers are kept in files, and of how rules are found.
var kept = []mutation{
	// Files with answers, beside a SQLite database.
	{
		"everybody may read the file of an answer", "task/sqlstore/results.go",
		`os.O_RDWR|os.O_CREATE, 0o600)`, `os.O_RDWR|os.O_CREATE, 0o644)`,
		"task/sqlstore", "^TestResultFiles$",
	},
	{
		"everybody may look into the directory of answers", "task/sqlstore/results.go",
		`os.Chmod(name, 0o700)`, `os.Chmod(name, 0o755)`,
		"task/sqlstore", "^TestResultFiles$",
	},
	{
		"the file of an answer is called like its task", "task/sqlstore/results.go",
		`	return hex.EncodeToString(sum[:])`, `	_ = sum
	return string(id)`,
		"task/sqlstore", "^TestResultFiles$",
	},
	{
		"an answer is not on disk when its task has completed", "task/sqlstore/change.go",
		`return s.results.sync(t.ID)`, `return 0, nil`,
		"task/sqlstore", "^TestResultFlushed$",
	},
	{
		"an answer that the disk has lost counts as kept", "task/sqlstore/results.go",
		`	return r.unsynced[name]`, `	return err`,
		"task/sqlstore", "^TestResultFlushed$",
	},
	{
		"the file of an answer outlives its task", "task/sqlstore/change.go",
		`		s.results.remove(swept.id)`, `		_ = swept`,
		"task/sqlstore", "^TestResultFiles$",
	},
	{
		"a damaged answer is delivered", "task/sqlstore/results.go",
		`if binary.BigEndian.Uint32(head[4:]) != p.checksum(data) {`, `if false {`,
		"task/sqlstore", "^TestResultDamaged$",
	},
	{
		"files of answers do not count", "task/sqlstore/blobs.go",
		`return u.files+u.pages*u.pageSize+more <= s.maxBytes-s.maxBytes/headroom, err`, `return u.pages*u.pageSize+more <= s.maxBytes, err`,
		"task/sqlstore", "^TestResultLimit$",
	},

	// Rules that are found by a text in the name.
	{
		"a rule is not found behind the beginning of another's text", "internal/policy/inside.go",
		`		from = x.at[from].shorter`, `		from = 0`,
		"internal/policy", "^TestTextsProperty$",
	},
	{
		"a rule is not found within another's text", "internal/policy/inside.go",
		`s = x.at[s].ending {`, `s = 0 {`,
		"internal/policy", "^TestTextsProperty$",
	},
}
