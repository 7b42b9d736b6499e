package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/config"
)

func TestWith_ConfigMap_OverridesFlags(t *testing.T) {
	t.Parallel()
	flags := config.Default()
	flags.ReadyTimeout = 3 * time.Minute
	got, err := flags.With(map[string]string{"ProcessingStateRequeueInterval": "10s", "BlockDeletion": "true", "HardDeleteTimeout": " 1h30m\n"})
	require.NoError(t, err)
	want := flags
	want.ProcessingStateRequeueInterval, want.BlockDeletion, want.HardDeleteTimeout = 10*time.Second, true, 90*time.Minute
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWith_NoConfigMap_RestoresFlags(t *testing.T) {
	t.Parallel()
	flags := config.Default()
	flags.ReadyTimeout = 3 * time.Minute
	if _, err := flags.With(map[string]string{"ReadyTimeout": "10s"}); err != nil {
		t.Fatal(err)
	}
	got, err := flags.With(nil)
	require.NoError(t, err)
	if diff := cmp.Diff(flags, got); diff != "" {
		t.Error(diff)
	}
}

func TestSettings_Each_IsConfigMapKeyOrFlagOnly(t *testing.T) {
	t.Parallel()
	for _, s := range config.Settings() {
		_, err := config.Default().With(map[string]string{s.Key: s.Default})
		if !s.FlagOnly && err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		if s.FlagOnly {
			want := []config.InvalidError{{s.Key, "cannot change at run time", "the flag --" + s.Flag + " of the manager instead"}}
			if diff := cmp.Diff(want, invalid(err)); diff != "" {
				t.Errorf("%s: %s", s.Key, diff)
			}
		}
	}
}

func TestWith_OneInvalidKey_ChangesNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data map[string]string
		want []string
	}{
		"text instead of a duration": {
			map[string]string{"ReadyTimeout": "soon", "BlockDeletion": "true"},
			[]string{`ReadyTimeout: "soon" is not a duration: want a duration from 100ms to 168h, such as 90s or 1h30m`},
		},
		"a number without a unit": {
			map[string]string{"ReadyTimeout": "60"},
			[]string{`ReadyTimeout: "60" is not a duration: want a duration from 100ms to 168h, such as 90s or 1h30m`},
		},
		"an empty value": {
			map[string]string{"ReadyTimeout": ""},
			[]string{`ReadyTimeout: "" is not a duration: want a duration from 100ms to 168h, such as 90s or 1h30m`},
		},
		"a negative duration": {
			map[string]string{"ReadyTimeout": "-1m"},
			[]string{"ReadyTimeout: -1m is not positive: want a duration from 100ms to 168h"},
		},
		"a bool in other words": {
			map[string]string{"BlockDeletion": "yes"},
			[]string{`BlockDeletion: "yes" is not a bool: want true or false`},
		},
		"a key of the original that means nothing here": {
			map[string]string{"RsaKeyBits": "4096"},
			[]string{"RsaKeyBits: is not a setting of this manager: the keys of certificates are of the curve P-256: want no such key"},
		},
		"several, by key": {
			map[string]string{"ReadyTimeout": "x", "BlockDeletion": "1", "LeaderElect": "true", "HardDeleteTimeout": "1h"},
			[]string{
				`BlockDeletion: "1" is not a bool: want true or false`,
				"LeaderElect: cannot change at run time: want the flag --leader-elect of the manager instead",
				`ReadyTimeout: "x" is not a duration: want a duration from 100ms to 168h, such as 90s or 1h30m`,
			},
		},
		"values that do not fit together": {
			map[string]string{"ReadyTimeout": "1s"},
			[]string{"ReadyCheckInterval: 2s is too long: want at most 1s, which is ReadyTimeout"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Default().With(tt.data)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tt.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(config.Default(), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWith_UnknownKey_ListsKnownKeys(t *testing.T) {
	t.Parallel()
	_, err := config.Default().With(map[string]string{"readyTimeout": "1m"})
	all := invalid(err)
	if len(all) != 1 || all[0].Key != `"readyTimeout"` || all[0].Problem != "is not a setting" {
		t.Fatalf("got %+v", all)
	}
	for _, s := range config.Settings() {
		if got := strings.Contains(all[0].Allowed, s.Key); got == s.FlagOnly {
			t.Errorf("%q, flag only %v, in %s: %v", s.Key, s.FlagOnly, all[0].Allowed, got)
		}
	}
}

func TestWith_LongValue_GivesShortError(t *testing.T) {
	t.Parallel()
	_, err := config.Default().With(map[string]string{"ReadyTimeout": strings.Repeat("x", 1<<20), strings.Repeat("k", 253): ""})
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func FuzzWith(f *testing.F) {
	for _, s := range config.Settings() {
		f.Add(s.Key, s.Default, "BlockDeletion", "true")
	}
	f.Add("ReadyTimeout", "1h", "ReadyCheckInterval", "2h")
	f.Add("HardDeleteTimeout", "9223372036854775807ns", "x", "\xff")
	f.Add("ExpirationBoundary", "-168h", "ReadyTimeout", "1e3s")
	f.Fuzz(func(t *testing.T, key, value, other, otherValue string) {
		base := config.Default()
		data := map[string]string{key: value, other: otherValue}
		got, err := base.With(data)
		if err != nil {
			if got != base {
				t.Fatalf("changed %v beside the error %v", config.Diff(base, got), err)
			}
			if len(invalid(err)) == 0 || strings.Contains(err.Error(), "not joined") {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		require.NoError(t, got.Validate(), "accepted what cannot be")
		for _, changed := range config.Diff(base, got) {
			if _, ok := data[changed]; !ok {
				t.Errorf("changed %s although the ConfigMap does not contain it", changed)
			}
		}
		if again, err := got.With(data); err != nil || again != got {
			t.Errorf("laid over itself: %v, %v", config.Diff(got, again), err)
		}
	})
}
