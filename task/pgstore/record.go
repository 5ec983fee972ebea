package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// changeRecords runs a statement on a connection of the pool.
func (s *Store) changeRecords(ctx context.Context, a task.Action, c sqlcore.Statement) (int, error) {
	if err := s.db.Usable(ctx, a); err != nil {
		return 0, err
	}
	var changed int64
	err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, c.Query, c.Args...)
		changed = tag.RowsAffected()
		return err
	})
	return int(changed), s.db.Fault(ctx, a, err)
}
