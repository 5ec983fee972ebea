//go:build !linux

package isolate

import (
	"context"
	"errors"
)

var errSystem = errors.New("isolate needs Linux with systemd")

func (o Options) asPerson(func() error) error                   { return errSystem }
func (o Options) prepare() error                                { return errSystem }
func (o Options) giveTo(_, _ string) error                      { return errSystem }
func (o Options) keepForRoot(string) error                      { return errSystem }
func (o Options) run(context.Context, [][]string) error         { return errSystem }
func (o Options) runAsPerson(context.Context, [][]string) error { return errSystem }
func (o Options) awaitSocket(context.Context, string) error     { return errSystem }
func (o Options) userExists(string) bool                        { return false }
func onlyRootChanges(string) error                              { return errSystem }
func rootWays(Person) []string                                  { return nil }
