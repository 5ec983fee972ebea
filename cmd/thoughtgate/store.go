package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

func newStore() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "store",
		Short: "Maintain the store of held calls",
		Long: "Maintain the store of held calls: the one that serve uses with the same file and environment.\n\n" +
			"Only one process at a time can use a SQLite file, so stop the gate first.\n" +
			"Encrypted stores need the keys in THOUGHTGATE_STORE_KEYS.",
	})
	f := storeFlags{
		file: cmd.PersistentFlags().StringP("config", "c", "", "configuration `file` (default: the one in THOUGHTGATE_CONFIG)"),
		dsn:  cmd.PersistentFlags().String("store", "", "another store than the configured one: sqlite:FILE, or a postgres:// or redis:// `URL` (put passwords into THOUGHTGATE_STORE instead)"),
	}
	cmd.AddCommand(newStoreMigrate(f), newStoreCheck(f), newStoreExport(f), newStoreImport(f), newStoreRekey(f), newStoreRotate(f), newStoreVacuum(f))
	return cmd
}

// storeFlags select a store.
type storeFlags struct{ file, dsn *string }

// An openFunc opens a store.
type openFunc func(storage.Settings, context.Context) (*sealedstore.Store, error)

// mustExist returns an openFunc that fails, instead of creating a file, if the store's file
// does not exist.
func mustExist(open openFunc) openFunc {
	return func(s storage.Settings, ctx context.Context) (*sealedstore.Store, error) {
		if file, ok := s.File(); ok {
			if _, err := os.Stat(file); err != nil {
				return nil, fmt.Errorf("no store: %w", err)
			}
		}
		return open(s, ctx)
	}
}

// load returns the settings of the store.
func (f storeFlags) load() (config.Config, error) {
	sources := config.Sources{File: *f.file, Environ: os.Environ()}
	if *f.dsn != "" {
		sources.Overrides = []config.Override{{Source: "--store", Setting: "store", Values: []string{*f.dsn}}}
	}
	cfg, _, err := config.LoadStorage(sources)
	return cfg, err
}

// open opens that store.
func (f storeFlags) open(cmd *cobra.Command, how openFunc) (*sealedstore.Store, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	settings := app.Storage(cfg)
	if !settings.Durable() {
		return nil, errors.New("the store is memory:, which only the gate itself can read")
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), openTimeout)
	defer cancel()
	store, err := how(settings, ctx)
	if storage.InUse(err) {
		return nil, fmt.Errorf("%w; stop the gate first", err)
	}
	return store, err
}

const openTimeout = 30 * time.Second

// with opens the store, calls do, and closes the store.
func (f storeFlags) with(cmd *cobra.Command, how openFunc, do func(*sealedstore.Store) error) error {
	store, err := f.open(cmd, how)
	if err != nil {
		return err
	}
	return errors.Join(do(store), store.Close())
}

// command makes cmd call do with the open store.
func (f storeFlags) command(cmd *cobra.Command, how openFunc, do func(*cobra.Command, *sealedstore.Store) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.with(cmd, how, func(s *sealedstore.Store) error { return do(cmd, s) })
	}
	return cmd
}

func newStoreMigrate(f storeFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:   "migrate",
		Short: "Create or update the tables",
		Long: "Create the tables of the store, or update them. serve also does this when it starts; run this command to do it\n" +
			"beforehand.",
		Args: noArguments,
	}, storage.Settings.OpenUnverified, func(cmd *cobra.Command, s *sealedstore.Store) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), storage.Migrated(s))
		return err
	})
}

func newStoreCheck(f storeFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:   "check",
		Short: "Check the store for damage",
		Long: "Read the whole store and check the file itself, every held call and its digest, every result,\n" +
			"whether the gate's root key and the sessions of operators can be decrypted, and the hash chain of the audit log. Prints every problem, and fails if there is one.",
		Args: noArguments,
	}, mustExist(storage.Settings.OpenUnverified), check)
}

func check(cmd *cobra.Command, s *sealedstore.Store) error {
	printWith := func(prefix string) func(string) {
		return func(text string) {
			for line := range strings.Lines(text) {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), prefix+strings.TrimSpace(line))
			}
		}
	}
	h, err := storage.Check(cmd.Context(), s, printWith(""), printWith("warning: "))
	if err != nil {
		return err
	}
	if h.Problems > 0 {
		return fmt.Errorf("%s in %s", count(h.Problems, "problem"), describeHealth(h))
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok:", describeHealth(h))
	return err
}

func describeHealth(h storage.Health) string {
	parts := []string{fmt.Sprintf("%s (%d pending), %s, %s",
		count(h.Tasks, "held call"), h.Pending, count(h.Chunks, "result chunk"), count(h.Entries, "audit log entry"))}
	for _, key := range slices.Sorted(maps.Keys(h.Keys)) {
		name := "encrypted with key " + key
		if key == "" {
			name = "not encrypted"
		}
		parts = append(parts, fmt.Sprintf("%d %s", h.Keys[key], name))
	}
	return strings.Join(parts, "; ")
}

func newStoreExport(f storeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Export held calls and the audit log to a file",
		Long: "Write every held call and the audit log to a file or to standard output, as lines of JSON for \"store import\".\n" +
			"Encrypted data stays encrypted, so the export needs no keys. The gate's root key, the sessions of operators,\n" +
			"connections to servers and standing approvals are never exported.",
		Args: optionalArgument,
	}
	plain := cmd.Flags().Bool("plain", false, "decrypt: anyone with the file can read all arguments and results")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, form := "-", storage.AsStored
		if len(args) > 0 {
			name = args[0]
		}
		if *plain {
			form = storage.Decrypted
		}
		return f.with(cmd, mustExist(storage.Settings.OpenUnverified), func(s *sealedstore.Store) error {
			return toFile(cmd.OutOrStdout(), name, func(w io.Writer) error {
				moved, err := storage.Export(cmd.Context(), s, w, form)
				if err == nil {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "exported", describeMoved(moved))
				}
				return err
			})
		})
	}
	return cmd
}

func describeMoved(m storage.Counts) string {
	return strings.Join([]string{count(m.Tasks, "held call"), count(m.Chunks, "result chunk"), count(m.Entries, "audit log entry")}, ", ")
}

// count returns a number with a noun in the singular or plural.
func count(n int, what string) string {
	text := fmt.Sprintf("%d %s", n, what)
	switch stem, y := strings.CutSuffix(text, "y"); {
	case n == 1:
		return text
	case y:
		return stem + "ies"
	default:
		return text + "s"
	}
}

// toFile is like newFile, but writes to standard output if the name is "-".
func toFile(stdout io.Writer, name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(stdout)
	}
	return newFile(name, write)
}

// newFile creates a file that only its owner can read. The file must not exist. After an error, newFile removes it.
func newFile(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func newStoreImport(f storeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import a file that \"store export\" wrote",
		Long: "Import a file that \"store export\" wrote, from any kind of store into any kind. FILE may be - for standard input.\n" +
			"If keys are given, everything is encrypted with the first key. Existing entries are never overwritten.",
		Args: oneArgument,
	}
	merge := cmd.Flags().Bool("merge", false, "import into a store that is not empty, for example after an interrupted import")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target := storage.IntoEmpty
		if *merge {
			target = storage.Merge
		}
		from, err := fromFile(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }() // it was only read
		return f.with(cmd, storage.Settings.Open, func(s *sealedstore.Store) error {
			moved, err := storage.Import(cmd.Context(), s, from, target, time.Now())
			switch {
			case errors.Is(err, storage.ErrNotEmpty):
				return fmt.Errorf("%w; nothing was imported; to add what is missing, use --merge", err)
			case err != nil:
				return fmt.Errorf("stopped after %s: %w; to continue, import again with --merge", describeMoved(moved), err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "imported", describeMoved(moved))
			return err
		})
	}
	return cmd
}

func fromFile(stdin io.Reader, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

func newStoreRekey(f storeFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:   "rekey",
		Short: "Encrypt everything with the first key",
		Long: "Encrypt everything in the store with the first key of THOUGHTGATE_STORE_KEYS. Afterwards the other keys are no\n" +
			"longer needed. With a single key, the command also encrypts calls that are not encrypted, held or recorded: run it\n" +
			"after you have set the first key. With several keys, such calls stay as they are, because someone without a key may\n" +
			"have written them.",
		Args: noArguments,
	}, mustExist(storage.Settings.Open), func(cmd *cobra.Command, s *sealedstore.Store) error {
		if s.Keys().Empty() {
			return errors.New("no encryption key: set THOUGHTGATE_STORE_KEYS, or storage.keys in the configuration file")
		}
		n, err := storage.Rekey(cmd.Context(), s)
		if errors.Is(err, sealedstore.ErrNotSealed) {
			return fmt.Errorf("encrypted %s; others are not encrypted and stay as they are, because there are several keys: "+
				"if they were stored before the first key was set, run this command again with only the first key: %w", count(n, "held call"), err)
		}
		if err != nil {
			return fmt.Errorf("stopped after %s: %w", count(n, "held call"), err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "encrypted %s with key %s\n", count(n, "held call"), s.Keys().First())
		return err
	})
}

func newStoreVacuum(f storeFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:   "vacuum",
		Short: "Release unused disk space",
		Long: "Release disk space that the store does not use. A SQLite file is rewritten, which needs as much free disk space as\n" +
			"the file takes. PostgreSQL does this by itself from time to time. Redis has nothing to release.",
		Args: noArguments,
	}, mustExist(storage.Settings.OpenUnverified), func(cmd *cobra.Command, s *sealedstore.Store) error {
		can, err := storage.Vacuum(cmd.Context(), s)
		if err != nil {
			return err
		}
		text := "done"
		if !can {
			text = "nothing to release in this kind of store"
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
		return err
	})
}

func newStoreRotate(f storeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the gate's root key",
		Long: "Create a new root key. The gate uses it to seal operators' sessions and the state that agents return. The old key\n" +
			"remains valid for what it sealed, so operators stay signed in. Running gates use the new key within a second.\n\n" +
			"If the old key may have leaked, use --forget: it deletes the old key, all standing approvals and all connections to\n" +
			"servers, without revoking their tokens, and every operator must sign in again. Held calls are kept.",
		Args: noArguments,
	}
	forget := cmd.Flags().Bool("forget", false, "delete the old key, all standing approvals and connections, and end all operator sessions now")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := f.load()
		if err != nil {
			return err
		}
		how, rotate := storage.Settings.Open, func(s *sealedstore.Store) error {
			return app.RotateKey(cmd.Context(), s, max(cfg.Operators.Session, cfg.Tasks.MaxTTL))
		}
		if *forget {
			how, rotate = storage.Settings.OpenUnverified, func(s *sealedstore.Store) error { return forgetRecords(cmd.Context(), s) }
		}
		return f.with(cmd, mustExist(how), func(s *sealedstore.Store) error {
			if err := rotate(s); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "root key replaced")
			return err
		})
	}
	return cmd
}

// forgetRecords deletes all records, even unreadable ones, and creates a new root key.
func forgetRecords(ctx context.Context, s *sealedstore.Store) error {
	for {
		page, err := s.ListRecords(ctx, gatestore.RecordQuery{Limit: 100})
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := s.DeleteRecord(ctx, r.Name); err != nil {
				return err
			}
		}
		if len(page) == 0 {
			_, err := keyring.New(s, time.Now).Label(ctx)
			return err
		}
	}
}
