package task_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// patchy is a store whose second page has an error.
type patchy struct {
	*memstore.Store

	err   error
	pages *int
}

func (s patchy) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.Store.List(ctx, q)
	if *s.pages++; *s.pages == 2 {
		err = s.err
	}
	return page, err
}

func TestEachSkipsUnreadableTasks(t *testing.T) {
	s := newStore(t)
	var all []task.ID
	for i := range 7 {
		made, err := task.New(draft(task.ID(fmt.Sprint("tg_", i)), "ann"), epoch.Add(time.Duration(-i)*time.Second))
		if err == nil {
			err = s.Create(t.Context(), made, task.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, made.ID)
	}
	for _, tt := range []struct {
		name   string
		err    error
		stop   int
		want   []task.ID
		errors int
		pages  int
	}{
		{"all", nil, -1, all, 0, 3},
		{"until the caller stops", nil, 3, all[:3], 0, 1},
		{"past unreadable tasks", task.ErrUnreadable, -1, all, 1, 3},
		{"until the store fails", task.ErrUnavailable, -1, all[:3], 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pages, failed := 0, 0
			var got []task.ID
			for found, err := range storekit.Each(t.Context(), patchy{s, tt.err, &pages}, task.Query{Scope: task.OwnedBy("ann"), Limit: 3}) {
				if err != nil {
					mustBe(t, err, tt.err)
					failed++
					continue
				}
				if got = append(got, found.ID); len(got) == tt.stop {
					break
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || failed != tt.errors || pages != tt.pages {
				t.Errorf("%d errors, %d pages (-want +got):\n%s", failed, pages, diff)
			}
		})
	}
}

func TestEachEntryReadsAllPages(t *testing.T) {
	s := newStore(t)
	for i := range 7 {
		if err := s.Append(t.Context(), task.Note{At: epoch, Step: "started", Actor: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for e, err := range auditlog.Each(t.Context(), s, auditlog.Query{After: 1, Limit: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Actor)
	}
	if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6"}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	s.Close()
	n := 0
	for _, err := range auditlog.Each(t.Context(), s, auditlog.Query{}) {
		if n++; !errors.Is(err, task.ErrClosed) {
			t.Errorf("err = %v; want %v", err, task.ErrClosed)
		}
	}
	if n != 1 {
		t.Errorf("%d results of a closed store; want its error", n)
	}
}
