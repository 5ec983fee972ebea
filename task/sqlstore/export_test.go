package sqlstore

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// On returns o with another file system under the database.
func (o SQLiteOptions) On(vfs string) SQLiteOptions {
	o.vfs = vfs
	return o
}

// Outside returns o with every chunk of an answer in a file.
func (o SQLiteOptions) Outside() SQLiteOptions {
	o.outside = true
	return o
}

// OnFlush has f called in the place of flushing a file with an answer.
func (s *SQLite) OnFlush(f func(*os.File) error) { s.results.flush = f }

// ResultName returns the name of the file with the answer to a task.
func ResultName(id task.ID) string { return resultName(id) }

// Migrate runs other files than those of this package on a SQLite database.
func Migrate(ctx context.Context, db *sql.DB, files fs.FS) error {
	_, err := migrateSQLite(ctx, db, files)
	return err
}

// SelectPage returns the statement for the page of q that follows a position.
func SelectPage(q task.Query, after task.Position) (statement string, args []any) {
	return selectPage(q, after)
}

// Statements returns every statement on tasks that is always the same, by
// what it is for.
func Statements() map[string]string {
	return map[string]string{
		"get": getTask, "visit": nextDocuments, "get chunk": getChunk, "find chunk": findChunk, "drop chunk": dropChunk, "overdue": overdueTasks,
		"count all": countAll, "count owner": countOwner, "count rooms": countRooms, "find same": findSame, "find": findTask,
		"update": updateTask, "sweep": sweepTasks,
		"journal": journalPage, "story": journalStory, "trim": discardEntries,
	}
}

// PostgresStatements returns those that are only for PostgreSQL.
func PostgresStatements() map[string]string {
	return map[string]string{
		"get": getTask, "visit": nextDocuments, "get chunk": getChunk, "overdue": overdueTasks,
		"find": findTask, "find state": findState, "load": loadTasks, "replace": replaceTask, "delete": deleteTasks,
		"journal": journalPage, "story": journalStory, "chain": takeNotes, "trim": trimJournal,
	}
}

// Migrations returns the names of the files that make the schema of one kind
// of database, in the order in which they are run.
func Migrations(kind string) []string {
	files, err := fs.Glob(embedded, "migrations/"+kind+"/*.sql")
	if err != nil {
		panic(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".sql")
	}
	return files
}

// VersionTable makes the table that tells the version.
const VersionTable = versionTable
