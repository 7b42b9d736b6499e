package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/testcontainers/testcontainers-go"
	tcpostgres "github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/testkit"
)

// ImageEnv is the name of the environment variable with the PostgreSQL image of the container fallback; empty means DefaultImage.
const ImageEnv = "KEB_TEST_POSTGRES_IMAGE"

// DefaultImage is the image of the container fallback.
const DefaultImage = "postgres:17-alpine"

// source is one way to get a server. It returns errNotHere if the machine does not support it.
type source struct {
	name  string
	start func(ctx context.Context) (*pgServer, error)
}

func startServer(ctx context.Context) (*pgServer, error) {
	if address := os.Getenv(DatabaseURLEnv); address != "" {
		// The address was set explicitly, so there is no fallback.
		s, err := newServer(ctx, address, func(context.Context) error { return nil })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", DatabaseURLEnv, err)
		}
		return s, nil
	}
	return firstOf(ctx,
		source{"the machine's own binaries", fromMachine},
		source{"a container", fromContainer},
		source{"downloaded binaries", fromDownload},
	)
}

// firstOf returns the first server that starts, or the errors of all sources with advice.
func firstOf(ctx context.Context, sources ...source) (*pgServer, error) {
	var errs []error
	for _, src := range sources {
		s, err := src.start(ctx)
		if err == nil {
			return s, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", src.name, err))
	}
	return nil, fmt.Errorf("install PostgreSQL (apt-get install postgresql), or set %s to the address of a server, or start a Docker engine: %w",
		DatabaseURLEnv, errors.Join(errs...))
}

func fromMachine(ctx context.Context) (*pgServer, error) { return local(ctx, "") }

func local(ctx context.Context, binDir string) (*pgServer, error) {
	dir, err := testkit.DataDir()
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(filepath.Dir(dir)) }
	pg, err := pglocal.Start(ctx, pglocal.Config{DataDir: dir, BinDir: binDir})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return newServer(ctx, pg.URL("postgres"), func(ctx context.Context) error {
		return errors.Join(pg.Stop(ctx), remove())
	})
}

func fromContainer(ctx context.Context) (_ *pgServer, err error) {
	// The library panics if it finds no engine.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("docker: %v", p)
		}
	}()
	image := os.Getenv(ImageEnv)
	if image == "" {
		image = DefaultImage
	}
	container, err := tcpostgres.Run(ctx, image, tcpostgres.WithPassword("keb"), tcpostgres.BasicWaitStrategies())
	stop := func(ctx context.Context) error {
		return testcontainers.TerminateContainer(container, testcontainers.StopContext(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, stop(ctx))
	}
	address, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, errors.Join(err, stop(ctx))
	}
	return newServer(ctx, address, stop)
}

func fromDownload(ctx context.Context) (*pgServer, error) {
	dir, err := pglocal.DefaultFetchDir()
	if err != nil {
		return nil, err
	}
	binDir, err := pglocal.FetchBinaries(ctx, pglocal.FetchConfig{Dir: dir})
	if err != nil {
		return nil, err
	}
	return local(ctx, binDir)
}
