package pgstore

import (
	"context"
	"io/fs"
	"path"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// Statements returns every statement on tasks that is always the same, by
// what it is for.
func Statements() map[string]string {
	return map[string]string{
		"get": sqlcore.GetTask, "visit": sqlcore.NextDocuments, "get chunk": sqlcore.GetChunk, "overdue": sqlcore.OverdueTasks,
		"count rooms": sqlcore.CountRooms,
		"find":        sqlcore.FindTask, "find state": findState, "load": loadTasks, "replace": replaceTask, "delete": deleteTasks, "delete chunks": deleteChunks,
		"journal": sqlcore.JournalPage, "story": sqlcore.JournalStory, "chain": takeNotes, "trim": trimJournal,
	}
}

// Migrations returns the names of the files that make the schema, in the order in
// which they are run.
func Migrations() []string {
	files, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".sql")
	}
	return files
}

// Setting returns the value of a setting of the server on the connections of s.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}
