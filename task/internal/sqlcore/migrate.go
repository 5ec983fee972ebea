package sqlcore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
)

// A Schema has the migrations of one kind of database: SQL files that are run in the order
// of their names, each once.
type Schema struct {
	Files   fs.FS
	Dialect Dialect
	Lock    string // the statement that takes a lock until the end of the transaction; may be empty
	Names   string // the query for the names of all tables
}

// Newest returns the version of the tables after all migrations.
func (s Schema) Newest() (int, error) {
	files, err := fs.Glob(s.Files, "*.sql")
	return len(files), err
}

// A Migration has the versions of the tables before and after it. From is 0 if there were
// no tables.
type Migration struct{ From, To int }

// Migrate runs the migrations that are missing, in the transaction tx. The table
// schema_version has the numbers of the files that were run.
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
	//mutate:false task/sqlitestore.TestUnknownSchemaIsRefused tables of a newer program are used
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
		insert, args := s.Dialect.Text("INSERT INTO schema_version (version) VALUES ($1)", m.From+i+1)
		if _, err := tx.ExecContext(ctx, insert, args...); err != nil {
			return m, err
		}
	}
	return m, nil
}

// version returns the version of the tables. It creates the table schema_version in an
// empty database.
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
		return 0, fmt.Errorf("%w: it has tables, but no table schema_version", ErrSchema)
	}
	_, err = tx.ExecContext(ctx, VersionTable)
	return 0, err
}

// VersionTable creates the table with the version.
const VersionTable = `CREATE TABLE schema_version (
		version    INTEGER   NOT NULL PRIMARY KEY,
		applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)`
