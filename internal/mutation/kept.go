package main

// kept are changes of how answers are kept in files, of how rules are found, and of what
// policy knows of clients.
var kept = []mutation{
	// Files with answers, beside a SQLite database.
	{
		"everybody may read the file of an answer", "task/sqlitestore/results.go",
		`os.O_RDWR|os.O_CREATE, 0o600)`, `os.O_RDWR|os.O_CREATE, 0o644)`,
		"task/sqlitestore", "^TestResultFiles$",
	},
	{
		"everybody may look into the directory of answers", "task/sqlitestore/results.go",
		`os.Chmod(name, 0o700)`, `os.Chmod(name, 0o755)`,
		"task/sqlitestore", "^TestResultFiles$",
	},
	{
		"the file of an answer is called like its task", "task/sqlitestore/results.go",
		`	return hex.EncodeToString(sum[:])`, `	_ = sum
	return string(id)`,
		"task/sqlitestore", "^TestResultFiles$",
	},
	{
		"an answer is not on disk when its task has completed", "task/sqlitestore/change.go",
		`return s.results.sync(t.ID)`, `return 0, nil`,
		"task/sqlitestore", "^TestResultFlushed$",
	},
	{
		"an answer that the disk has lost counts as kept", "task/sqlitestore/results.go",
		`	return r.unsynced[name]`, `	return err`,
		"task/sqlitestore", "^TestResultFlushed$",
	},
	{
		"the file of an answer outlives its task", "task/sqlitestore/change.go",
		`		s.results.remove(swept.ID)`, `		_ = swept`,
		"task/sqlitestore", "^TestResultFiles$",
	},
	{
		"a damaged answer is delivered", "task/sqlitestore/results.go",
		`if binary.BigEndian.Uint32(head[4:]) != p.checksum(data) {`, `if false {`,
		"task/sqlitestore", "^TestResultDamaged$",
	},
	{
		"files of answers do not count", "task/sqlitestore/blobs.go",
		`return u.files+u.pages*u.pageSize+more <= s.maxBytes-s.maxBytes/headroom, err`, `return u.pages*u.pageSize+more <= s.maxBytes, err`,
		"task/sqlitestore", "^TestResultLimit$",
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
	{
		"a full store cannot delete", "task/sqlitestore/writer.go",
		`spareToDelete = 2`, `spareToDelete = 1`,
		"task/sqlitestore", "^TestSQLiteFullOfTasks$",
	},
	// What policy knows of clients.
	{
		"policy takes a modern client for another one", "internal/conversation/judge.go",
		`c.Session = j.said(m)`, ``,
		"internal/mcphttp", "^TestModernRequestsNameTheirClient$",
	},
}
