package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// A change is read settleTime after its first event, because editors and swapped volumes
// change several files in a row. No events are received meanwhile: those of a database in
// the same directory would cost more than the calls that it stores.
const settleTime = 300 * time.Millisecond

// A Source loads the configuration again.
type Source struct {
	Load   func() (config.Config, error)
	Signal <-chan os.Signal // requests a reload; may be nil
	Level  *slog.LevelVar   // the log level to change; may be nil
}

// A reloader applies changed configuration while the gate runs.
type reloader struct {
	app     *App
	source  Source
	current config.Config
	read    [sha256.Size]byte // fingerprint of the last files
	watcher *fsnotify.Watcher
	watched []string
	changes *changes
}

// ReloadFrom makes [App.Run] reload the configuration when one of its files changes or
// source.Signal receives. An invalid configuration changes nothing.
func (a *App) ReloadFrom(source Source) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	a.reloader = &reloader{app: a, source: source, current: a.base.cfg, read: a.base.cfg.Fingerprint, watcher: watcher, changes: a.newChanges()}
	return a.reloader.watch(a.base.cfg.Watch)
}

// watch watches directories, not files, because editors and Kubernetes replace files.
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
	events := r.watcher.Events // nil while a change settles
	var settled <-chan time.Time
	r.note(byStart)
	defer r.writeLast(ctx)
	for {
		var again <-chan time.Time
		if err := r.changes.write(ctx); err != nil && ctx.Err() == nil {
			r.app.base.log.ErrorContext(ctx, "configuration change not in the audit log yet; trying again", "err", err)
			again = time.After(writeRetryInterval)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				return
			}
			events, settled = nil, time.After(settleTime)
		case err := <-r.watcher.Errors:
			// Events may be lost, so read the files again.
			r.app.base.log.WarnContext(ctx, "watching the configuration failed", "err", err)
			events, settled = nil, time.After(settleTime)
		case <-r.source.Signal:
			r.reload(ctx, bySignal)
		case <-settled:
			events, settled = r.watcher.Events, nil
			r.reload(ctx, byFile)
		}
	}
}

// writeLast writes the changes that are not in the audit log yet when the gate stops.
func (r *reloader) writeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	if err := r.changes.write(ctx); err != nil {
		r.app.base.log.ErrorContext(ctx, "configuration change not in the audit log", "err", err)
	}
}

// errPolicyGone reports a configuration without rules for a gate that has rules. A file that
// is still being written may look like that.
var errPolicyGone = errors.New("the new configuration has no rules; to forward everything, set default: forward")

// reload loads and applies the configuration, and reports the result. After a file event it does nothing if the content
// of the files is unchanged.
func (r *reloader) reload(ctx context.Context, by string) {
	cfg, err := r.source.Load()
	if by == byFile && cfg.Fingerprint == r.read {
		return
	}
	r.read = cfg.Fingerprint
	if err == nil {
		err = r.apply(ctx, cfg)
	}
	r.app.operators.status.configProblem.Store(&err)
	if err != nil {
		r.app.base.metrics.Reloaded(metrics.Error)
		r.app.base.log.ErrorContext(ctx, "configuration not reloaded", "err", err)
		return
	}
	r.note(by)
	r.app.base.metrics.Reloaded(metrics.Success)
}

// note queues a journal entry about the current configuration.
func (r *reloader) note(by string) {
	files := hex.EncodeToString(r.current.Fingerprint[:6])
	r.changes.applied = append(r.changes.applied, appliedConfig{at: time.Now(), policy: r.app.approvals.catalog.PolicyID(), files: files, by: by})
}

// apply applies the settings that can change while the gate runs. It changes nothing if it
// returns an error.
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
		r.app.base.log.WarnContext(ctx, "policy", "warning", w.String())
	}
	if r.source.Level != nil {
		r.source.Level.Set(cfg.Telemetry.Log.Level)
	}
	r.current = cfg
	restart := restartNeeded(r.app.base.cfg, cfg)
	r.app.operators.status.restart.Store(&restart)
	if len(restart) > 0 {
		r.app.base.log.WarnContext(ctx, "restart needed for changed settings", "settings", restart)
	}
	listsChanged := r.app.approvals.catalog.Configure(settings)
	r.app.base.log.InfoContext(ctx, "configuration reloaded", "lists_changed", listsChanged)
	if listsChanged {
		r.app.agents.gateway.ListsChanged() // uses the contexts of its streams
	}
	return nil
}

// configure applies the settings, other than policy, that can change while the gate runs.
func (a *App) configure(cfg, old config.Config) error {
	secure, err := readCertificates(cfg)
	if err != nil {
		return err
	}
	channels, err := a.reopenChannels(cfg, old)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(operatorSettings(old), operatorSettings(cfg)) {
		if err := a.operators.configure(cfg); err != nil {
			return err
		}
	}
	authenticator, authorities := a.agents.identity, secure.authorities()
	//mutate:swap "|| !a.agents.authorities.Equal(authorities) " "" TestReloadAuthorities a removed authority is still trusted on open connections
	if !reflect.DeepEqual(old.Identity, cfg.Identity) || !a.agents.authorities.Equal(authorities) {
		authenticator = nil
	}
	if err := a.agents.configure(cfg, authorities, authenticator); err != nil {
		return err
	}
	if a.agents.listener != nil {
		a.agents.listener.SetTLS(secure.agents)
	}
	a.operators.listener.SetTLS(secure.operators)
	if err := a.approvals.service.Configure(approvalSettings(cfg)); err != nil {
		return err
	}
	a.approvals.setWorkflows(cfg.Workflows)
	a.approvals.current.Store(&cfg)
	a.approvals.record.Configure(recordSettings(cfg))
	if channels != nil {
		a.channels.replace(channels)
	}
	a.shutdown.Store(&cfg.Shutdown)
	return nil
}

// reopenChannels opens the channels of cfg, or returns nil if they are those of old.
func (a *App) reopenChannels(cfg, old config.Config) (*channelSet, error) {
	before, err := config.Revealed(old.Channels)
	if err != nil {
		return nil, err
	}
	now, err := config.Revealed(cfg.Channels)
	if err != nil || before == now {
		return nil, err
	}
	return a.channels.open(cfg)
}

// operatorSettings returns the operators' settings of cfg in a comparable form.
func operatorSettings(cfg config.Config) []any {
	o := cfg.Operators
	secrets := []any{o.Token.Reveal(), o.OIDC.ClientSecret.Reveal()}
	o.Token, o.OIDC.ClientSecret = config.Secret{}, config.Secret{}
	return append(secrets, o, cfg.AllowedHosts, cfg.AllowedOrigins)
}

// restartNeeded returns the names of the settings that differ from those at start and take
// effect only after a restart.
func restartNeeded(started, changed config.Config) []string {
	var names []string
	now := restartSettings(changed)
	for i, s := range restartSettings(started) {
		if !reflect.DeepEqual(s.value, now[i].value) {
			names = append(names, s.name)
		}
	}
	return names
}

// A restartSetting takes effect only when the gate starts. Its value is comparable with
// [reflect.DeepEqual].
type restartSetting struct {
	name  string
	value any
}

func restartSettings(c config.Config) []restartSetting {
	limits := c.Limits
	limits.MaxResult = 0 // can change while the gate runs
	return []restartSetting{
		{"listen", c.Listen},
		{"listen_tls", c.ListenTLS.CertFile != ""},
		{"operators.listen", c.Operators.Listen},
		{"operators.os_users", c.Operators.OSUsers},
		{"operators.tls", c.Operators.TLS.CertFile != ""},
		{"upstreams", comparableUpstreams(c.Upstreams)},
		{"endpoints", c.Endpoints},
		{"execution.lease", c.Execution.Lease},
		{"store", c.Store.Reveal()},
		// A gate that starts without a policy has not opened a store.
		{"rules", judges(c)},
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

// comparableUpstreams returns upstreams with revealed secrets.
func comparableUpstreams(upstreams []config.Upstream) (all []any) {
	for _, u := range upstreams {
		all = append(all, reveal(u.Headers), reveal(u.Env), u.OAuth.ClientSecret.Reveal())
		u.Headers, u.Env, u.OAuth.ClientSecret = nil, nil, config.Secret{}
		all = append(all, u)
	}
	return all
}
