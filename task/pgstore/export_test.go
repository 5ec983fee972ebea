package pgstore

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// Statements returns the constant statements on tasks, by their purpose.
func Statements() map[string]string {
	all := map[string]string{
		"get": sqlcore.GetTask, "visit": sqlcore.NextDocuments, "get chunk": sqlcore.GetChunk, "overdue": sqlcore.OverdueTasks,
		"find": sqlcore.FindTask, "find state": findState, "create": createTask, "replace": replaceTask,
		"journal": sqlcore.JournalPage, "story": sqlcore.JournalOfTask, "inbox": readInbox, "chain": moveNotes, "trim": trimJournal,
	}
	mine, _ := sqlcore.Reclaim("owner:ann")
	anyone, _ := sqlcore.Reclaim("")
	for _, where := range []string{sqlcore.Swept, mine, anyone} {
		all["delete where "+where] = fmt.Sprintf(deleteTasks, where, 100)
		all["delete chunks where "+where] = fmt.Sprintf(deleteChunks, where, 100, chunksAtOnce)
	}
	return all
}

// Migrations returns the names of the migrations, in their order.
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
