package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
)

// A change of a file is read once its directory has been quiet for settleTime,
// because an editor, or a volume that is swapped, changes several files in a row.
// It is read after maxSettleTime in any case, so that a file which is written all
// the time, such as a log, does not delay it.
const (
	settleTime    = 100 * time.Millisecond
	maxSettleTime = 500 * time.Millisecond
)

// A Source is where the configuration comes from, so that it can be read again.
type Source struct {
	Load   func() (config.Config, error)
	Signal <-chan os.Signal // asks for it to be read again; nil if nobody does
	Level  *slog.LevelVar   // of the log; nil if it cannot change
}

// reloader takes over changed configuration while the gate runs.
type reloader struct {
	app     *App
	source  Source
	current config.Config
	read    [sha256.Size]byte // fingerprint of the files that were read last
	watcher *fsnotify.Watcher
	watched []string
}

// ReloadFrom makes [App.Run] read the configuration again whenever a file of it
// changes or source's signal arrives. The settings that can change while the gate
// runs change at once and as a whole; a wrong configuration changes nothing.
func (a *App) ReloadFrom(source Source) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	a.reloader = &reloader{app: a, source: source, current: a.cfg, read: a.cfg.Fingerprint, watcher: watcher}
	return a.reloader.watch(a.cfg.Watch)
}

// watch follows directories rather than files: a file that is replaced, as
// editors and Kubernetes do, is another one.
func (r *reloader) watch(dirs []string) error {
	for _, dir := range dirs {
		if slices.Contains(r.watched, dir) {
			continue
		}
		if err := r.watcher.Add(dir); err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		r.watched = append(r.watched, dir)
	}
	return nil
}

// run reloads until ctx is done.
func (r *reloader) run(ctx context.Context) {
	var due settling
	defer due.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-r.watcher.Events:
			if !ok {
				return
			}
			due.delay(time.Now())
		case err := <-r.watcher.Errors:
			// Events may have been lost, so the files are read again.
			r.app.log.WarnContext(ctx, "watching the configuration failed", "err", err)
			due.delay(time.Now())
		case <-r.source.Signal:
			r.reload(ctx)
		case <-due.fired():
			due.stop()
			r.reloadChanged(ctx)
		}
	}
}

// A settling says when files that are being changed are to be read. The zero
// settling is idle.
type settling struct {
	timer *time.Timer // nil while idle
	last  time.Time   // when the timer fires at the latest
}

// delay puts the reading off by settleTime, at most until maxSettleTime after the
// first change.
func (s *settling) delay(now time.Time) {
	if s.timer == nil {
		s.timer, s.last = time.NewTimer(settleTime), now.Add(maxSettleTime)
		return
	}
	s.timer.Reset(max(0, min(settleTime, s.last.Sub(now))))
}

func (s *settling) fired() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

func (s *settling) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// errPolicyGone reports a configuration that would open a gate which has rules.
// A file that is still being written looks like that.
var errPolicyGone = errors.New("the new configuration has no rules; to forward everything, set default: forward")

// reload reads the configuration again and puts it in force.
func (r *reloader) reload(ctx context.Context) {
	cfg, err := r.source.Load()
	r.finish(ctx, cfg, err)
}

// reloadChanged is reload, except that nothing happens if the files say what they
// said before.
func (r *reloader) reloadChanged(ctx context.Context) {
	cfg, err := r.source.Load()
	if cfg.Fingerprint != r.read {
		r.finish(ctx, cfg, err)
	}
}

// finish puts cfg in force, unless reading it failed with err, and reports what
// came of it.
func (r *reloader) finish(ctx context.Context, cfg config.Config, err error) {
	r.read = cfg.Fingerprint
	if err == nil {
		err = r.apply(ctx, cfg)
	}
	r.app.operators.status.configProblem.Store(&err)
	if err != nil {
		r.app.metrics.Reloaded(metrics.Error)
		r.app.log.ErrorContext(ctx, "configuration not reloaded", "err", err)
		return
	}
	r.app.metrics.Reloaded(metrics.Success)
}

// apply puts a configuration in force, as far as that is possible while the gate
// runs. It changes nothing if it returns an error.
func (r *reloader) apply(ctx context.Context, cfg config.Config) error {
	settings, warnings, err := Settings(cfg)
	if err != nil {
		return err
	}
	if hasPolicy(r.current) && !hasPolicy(cfg) {
		return errPolicyGone
	}
	if err := r.watch(cfg.Watch); err != nil {
		return err
	}
	if err := r.app.configure(cfg, r.current); err != nil {
		return err
	}
	for _, w := range warnings {
		r.app.log.WarnContext(ctx, "policy", "warning", w.String())
	}
	if r.source.Level != nil {
		r.source.Level.Set(cfg.Telemetry.Log.Level)
	}
	r.current = cfg
	restart := restartNeeded(r.app.cfg, cfg)
	r.app.operators.status.restart.Store(&restart)
	if len(restart) > 0 {
		r.app.log.WarnContext(ctx, "restart needed for changed settings", "settings", restart)
	}
	listsChanged := r.app.approvals.gate.Swap(settings)
	r.app.log.InfoContext(ctx, "configuration reloaded", "lists_changed", listsChanged)
	if listsChanged {
		r.app.agents.hub.ListsChanged() //nolint:contextcheck // each stream has a context of its own
	}
	return nil
}

// configure puts in force what can change while the gate runs, beside policy.
func (a *App) configure(cfg, old config.Config) error {
	secure, err := readCertificates(cfg)
	if err != nil {
		return err
	}
	var by asker
	rebuilt := !reflect.DeepEqual(channelSettings(old), channelSettings(cfg))
	if rebuilt {
		if by, err = a.channels.newAsker(cfg); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(operatorSettings(old), operatorSettings(cfg)) {
		if err := a.operators.configure(cfg); err != nil {
			return err
		}
	}
	recogniser, authorities := a.agents.identity, secure.authorities()
	if !reflect.DeepEqual(old.Identity, cfg.Identity) || !a.agents.authorities.Equal(authorities) {
		recogniser = nil
	}
	if err := a.agents.configure(cfg, authorities, recogniser); err != nil {
		return err
	}
	if a.agents.listener != nil {
		a.agents.listener.ShowCertificate(secure.agents)
	}
	a.operators.listener.ShowCertificate(secure.operators)
	if err := a.approvals.desk.Configure(deskSettings(cfg)); err != nil {
		return err
	}
	a.approvals.setWorkflows(cfg.Workflows)
	if rebuilt {
		a.channels.replace(by)
	}
	a.shutdown.Store(&cfg.Shutdown)
	return nil
}

// operatorSettings returns what cfg says of operators, in a form that can be
// compared.
func operatorSettings(cfg config.Config) []any {
	o := cfg.Operators
	secrets := []any{o.Token.Reveal(), o.OIDC.ClientSecret.Reveal()}
	o.Token, o.OIDC.ClientSecret = config.Secret{}, config.Secret{}
	return append(secrets, o, cfg.AllowedHosts, cfg.AllowedOrigins, channelSettings(cfg))
}

// restartNeeded returns the names of the settings that take effect only when the
// gate starts, and differ from those it was started with.
func restartNeeded(started, changed config.Config) []string {
	var names []string
	now := fixedSettings(changed)
	for i, s := range fixedSettings(started) {
		if !reflect.DeepEqual(s.value, now[i].value) {
			names = append(names, s.name)
		}
	}
	return names
}

// A fixedSetting is a setting that takes effect only when the gate starts, in a
// form that can be compared.
type fixedSetting struct {
	name  string
	value any
}

func fixedSettings(c config.Config) []fixedSetting {
	limits := c.Limits
	limits.MaxResult = 0 // can change while the gate runs
	return []fixedSetting{
		{"listen", c.Listen},
		{"listen_tls", c.ListenTLS.CertFile != ""},
		{"operators.listen", c.Operators.Listen},
		{"operators.tls", c.Operators.TLS.CertFile != ""},
		{"upstreams", fixedUpstreams(c.Upstreams)},
		{"execution.lease", c.Execution.Lease},
		{"store", c.Store.Reveal()},
		// A gate that starts without a policy opens no store.
		{"rules", hasPolicy(c) || len(c.Tasks.ForceRequired) > 0},
		{"state_dir", c.StateDir},
		{"storage.keys", c.Storage.Keys.Reveal()},
		{"storage.timeout", c.Storage.Timeout},
		{"storage.connections", c.Storage.Connections},
		{"storage.max_size", c.Storage.MaxSize},
		{"limits", limits},
		{"telemetry.log.format", c.Telemetry.Log.Format},
		{"telemetry.traces", []any{c.Telemetry.Traces.Endpoint, c.Telemetry.Traces.Sample, reveal(c.Telemetry.Traces.Headers)}},
	}
}

// fixedUpstreams returns upstreams without what hides their secrets.
func fixedUpstreams(upstreams []config.Upstream) (all []any) {
	for _, u := range upstreams {
		all = append(all, reveal(u.Headers), reveal(u.Env))
		u.Headers, u.Env = nil, nil
		all = append(all, u)
	}
	return all
}
