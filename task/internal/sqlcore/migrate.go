package sqlcore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
)

// A Schema is the SQL that makes and changes the tables of one kind of
// database: files that are run in the order of their names, each once.
type Schema struct {
	Files fs.FS
	Lock  string // takes a lock until the end of the transaction, if one is needed
	Names string // finds the name of any table there is
}

// Newest returns the version that the database has once all files were run.
func (s Schema) Newest() (int, error) {
	files, err := fs.Glob(s.Files, "*.sql")
	return len(files), err
}

// A Migration tells which version the tables had, and which they have now. The
// versions are the same if there was nothing to do, and the first is 0 if there
// were no tables.
type Migration struct{ From, To int }

// Migrate brings the database up to date, in the transaction that tx is. The
// number of files that were run is kept in the table schema_version.
func (s Schema) Migrate(ctx context.Context, tx *sql.Tx) (Migration, error) {
	var m Migration
	if s.Lock != "" {
		if _, err := tx.ExecContext(ctx, s.Lock); err != nil {
			return m, err
		}
	}
	files, err := fs.Glob(s.Files, "*.sql")
	if err != nil {
		return m, err
	}
	m.To = len(files)
	if m.From, err = s.version(ctx, tx); err != nil {
		return m, err
	}
	if m.From > m.To {
		return m, fmt.Errorf("%w: it has version %d and the newest known is %d; use a newer program", ErrSchema, m.From, m.To)
	}
	for i, name := range files[m.From:] {
		script, err := fs.ReadFile(s.Files, name)
		if err != nil {
			return m, err
		}
		if _, err := tx.ExecContext(ctx, string(script)); err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO schema_version (version) VALUES ($1)", m.From+i+1); err != nil {
			return m, err
		}
	}
	return m, nil
}

// version returns how many files were run, and makes the table that tells if
// there is no table at all.
func (s Schema) version(ctx context.Context, tx *sql.Tx) (int, error) {
	tables := make(map[string]bool)
	rows, err := tx.QueryContext(ctx, s.Names)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, err
		}
		tables[name] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	version := 0
	switch {
	case tables["schema_version"]:
		err := tx.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_version").Scan(&version)
		return version, err
	case len(tables) > 0:
		return 0, fmt.Errorf("%w: it has tables, but no version table", ErrSchema)
	}
	_, err = tx.ExecContext(ctx, VersionTable)
	return 0, err
}

// VersionTable makes the table that tells the version.
const VersionTable = `CREATE TABLE schema_version (
		version    INTEGER   NOT NULL PRIMARY KEY,
		applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)`
