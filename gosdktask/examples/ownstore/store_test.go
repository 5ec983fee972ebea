package ownstore_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/gosdktask/examples/ownstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store { return &ownstore.Store{Dir: t.TempDir()} })
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	storetest.RunReopen(t, func() task.Store { return &ownstore.Store{Dir: dir} })
}
