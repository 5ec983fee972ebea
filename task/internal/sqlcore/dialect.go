package sqlcore

import (
	"fmt"
	"strconv"
	"strings"
)

// A Dialect has the differences in the SQL of databases. The zero Dialect is that of
// PostgreSQL and SQLite.
//
// The statements of this package have the parameters $1, $2 and so on, and are otherwise SQL that
// every database accepts: times are whole microseconds, documents are text, and hashes are bytes.
// Statements that need more, such as RETURNING or a lock, are in the stores.
type Dialect struct {
	// Positional reports whether parameters are question marks, with arguments in the
	// order of their use.
	Positional bool

	// Upsert returns the end of an INSERT of a row whose key may exist: the columns get the
	// new values, and nothing changes if there are none. It may be nil.
	Upsert func(key, columns []string) string
}

// Text returns a statement with its arguments as the database takes them.
func (d Dialect) Text(query string, args ...any) (string, []any) {
	if !d.Positional {
		return query, args
	}
	var text strings.Builder
	var used []any
	for {
		before, after, found := strings.Cut(query, "$")
		text.WriteString(before)
		if !found {
			return text.String(), used
		}
		query = strings.TrimLeft(after, "0123456789")
		n, err := strconv.Atoi(after[:len(after)-len(query)])
		if err != nil || n < 1 || n > len(args) {
			text.WriteString("$" + after[:len(after)-len(query)]) // the database refuses it
			continue
		}
		text.WriteByte('?')
		used = append(used, args[n-1])
	}
}

func (d Dialect) upsert(key []string, columns ...string) string {
	if d.Upsert != nil {
		return " " + d.Upsert(key, columns)
	}
	if len(columns) == 0 {
		return fmt.Sprintf(" ON CONFLICT (%s) DO NOTHING", strings.Join(key, ", "))
	}
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = excluded." + c
	}
	return fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s", strings.Join(key, ", "), strings.Join(sets, ", "))
}

// PutOutline returns the statement that keeps the outline of a task.
func (d Dialect) PutOutline() string {
	return "INSERT INTO outlines (task, version, document) VALUES ($1, $2, $3)" + d.upsert([]string{"task"}, "version", "document")
}

// PutChunk returns the statement that keeps a chunk of a result.
func (d Dialect) PutChunk() string {
	return "INSERT INTO chunks (task, n, data) VALUES ($1, $2, $3)" + d.upsert([]string{"task", "n"}, "data")
}

func (d Dialect) insertRecord() string {
	return "INSERT INTO records (version, expires, value, name) VALUES ($1, $2, $3, $4)" + d.upsert([]string{"name"})
}
