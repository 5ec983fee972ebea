package app

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// The connection limits fit into the process's file descriptors, even with very few, and
// operators have a reserved share.
func TestDivide(t *testing.T) {
	for _, files := range []uint64{0, 256, 1024, 20_000, 60_000, 1 << 20, 1 << 62} {
		cfg := config.Default()
		cfg.Storage.Connections = 16
		d := divide(files, cfg)
		all := uint64(d.agents + d.upstreams + d.operators + cfg.Storage.Connections + storeFiles + spareFiles)
		if limited := files > 0 && files < 1<<30; limited && all > files {
			t.Errorf("%d files: %+v needs %d", files, d, all)
		}
		if d.operators < 32 || d.agents < 32 || d.upstreams != 0 && d.upstreams < d.agents {
			t.Errorf("%d files: %+v", files, d)
		}
		if enough := files == 0 || files > 60_000; enough && (d.agents != cfg.Limits.MaxConnections || d.operators != 256) {
			t.Errorf("%d files: %+v; want the configured limits", files, d)
		}
	}
}
