package service

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

type nestedConfig struct {
	Limit int  `env:"LIMIT" envDefault:"7"`
	Fast  bool `env:"FAST"`
}

type testConfig struct {
	Addr     string        `env:"KEB_T_ADDR" envDefault:"127.0.0.1:8080"`
	Wait     time.Duration `env:"KEB_T_WAIT" envDefault:"5s"`
	Count    uint          `env:"KEB_T_COUNT"`
	Password string        `env:"KEB_T_PASSWORD,required"`
	Key      string        `env:"KEB_T_KEY"`
	A        nestedConfig  `envPrefix:"KEB_T_A_"`
	B        nestedConfig  `envPrefix:"KEB_T_B_"`
}

func (c *testConfig) Validate() error {
	if c.Addr == "nowhere" {
		return errors.New("KEB_T_ADDR: want host:port")
	}
	return nil
}

func TestLoadEnv_DefaultsFilesPrefixes_AreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("k"), 0o600))
	var got testConfig
	err := loadEnv(&got, map[string]string{
		"KEB_T_WAIT": "2m", "KEB_T_PASSWORD": "p", "KEB_T_KEY_FILE": file, "KEB_T_B_LIMIT": "9", "KEB_T_B_FAST": "true",
	})
	require.NoError(t, err)
	want := testConfig{
		Addr: "127.0.0.1:8080", Wait: 2 * time.Minute, Password: "p", Key: "k",
		A: nestedConfig{Limit: 7}, B: nestedConfig{Limit: 9, Fast: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got)\n%s", diff)
	}
}

func TestLoadEnv_MissingRelativeFile_ErrorHasPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	err := loadEnv(&testConfig{}, map[string]string{"KEB_T_KEY_FILE": ".keb/keys"})
	if want := "the file " + filepath.Join(dir, ".keb/keys") + " cannot be read"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestLoadEnv_Invalid_NamesVariablesWithoutValues(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	err := loadEnv(&testConfig{}, map[string]string{
		"KEB_T_WAIT": "canary1", "KEB_T_COUNT": "-1", "KEB_T_KEY_FILE": missing,
		"KEB_T_B_LIMIT": "canary2", "KEB_T_A_FAST": "canary3",
	})
	if err == nil {
		t.Fatal("no error")
	}
	got := OneLine(err)
	for _, want := range []string{
		"KEB_T_WAIT: want a duration such as 500ms, 30s or 5m",
		"KEB_T_COUNT: want a whole number that is not negative",
		"KEB_T_PASSWORD: is required and not set",
		"KEB_T_KEY_FILE: the file " + missing + " cannot be read: no such file or directory",
		"KEB_T_B_LIMIT: want a whole number",
		"KEB_T_A_FAST: want true or false",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	for _, bad := range []string{"canary", "KEB_T_A_LIMIT", "KEB_T_B_FAST"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in %q", bad, got)
		}
	}
}

func TestLoadEnv_Validate_IsCalled(t *testing.T) {
	t.Parallel()
	err := loadEnv(&testConfig{}, map[string]string{"KEB_T_ADDR": "nowhere", "KEB_T_PASSWORD": "p"})
	if err == nil || err.Error() != "configuration: KEB_T_ADDR: want host:port" {
		t.Errorf("got %v", err)
	}
}

func TestLoadEnv_Process_EnvironmentIsRead(t *testing.T) {
	t.Setenv("KEB_T_PASSWORD", "from the process")
	var got testConfig
	require.NoError(t, LoadEnv(&got))
	if got.Password != "from the process" {
		t.Errorf("got %q", got.Password)
	}
}

func TestLoadEnv_FileVariable_IsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(secret, []byte("canary\n"), 0o600))
	var got testConfig
	require.NoError(t, loadEnv(&got, map[string]string{"KEB_T_PASSWORD_FILE": secret, "KEB_T_KEY_FILE": secret}))
	if got.Password != "canary" || got.Key != "canary" {
		t.Errorf("password %q, key %q: want the content of the file", got.Password, got.Key)
	}
	missing := filepath.Join(dir, "missing")
	for name, environment := range map[string]map[string]string{
		"KEB_T_PASSWORD_FILE: the file " + missing + " cannot be read": {"KEB_T_PASSWORD_FILE": missing},
		"KEB_T_PASSWORD and KEB_T_PASSWORD_FILE":                       {"KEB_T_PASSWORD_FILE": secret, "KEB_T_PASSWORD": "canary"},
	} {
		err := loadEnv(&testConfig{}, environment)
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "canary") {
			t.Errorf("error is %v, want one with %q and no secret", err, name)
		}
	}
}
