package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// ErrUsage means that the command line was invalid and the error was printed.
var ErrUsage = errors.New("usage")

// ErrHelp means that help was requested and printed.
var ErrHelp = errors.New("help")

// ConfigError is a list of all faults in a configuration.
type ConfigError []error

func (e ConfigError) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Config is a configuration that can validate itself.
type Config interface {
	// Validate returns all faults, each with the key and the rule. A method Given(map[string]bool), if there is one, is
	// called before: with the keys that a flag, the environment or the file sets.
	Validate() []error
}

// Doubter is a [Config] with warnings about valid but suspicious values.
type Doubter interface {
	// Doubts returns the warnings of a valid configuration for --check-config.
	Doubts() []string
}

// Load is [Flags] for a command without arguments: it parses args, and also returns ErrUsage or ErrHelp.
func Load(command string, cfg Config, args []string, out io.Writer) (check bool, err error) {
	flags := pflag.NewFlagSet(command, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(out)
	load := Flags(cfg, flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return false, ErrHelp
		}
		meant := ""
		if bad, ok := errors.AsType[*pflag.NotExistError](err); ok {
			meant = MeantFlag(flags, bad)
		}
		fmt.Fprintf(out, "%s: %v%s (see --help)\n", command, err, meant)
		return false, ErrUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(out, "%s: unexpected argument %q (see --help)\n", command, flags.Arg(0))
		return false, ErrUsage
	}
	return load()
}

// MeantFlag suggests a flag in place of one that does not exist, also --seeds for -seeds.
func MeantFlag(flags *pflag.FlagSet, bad *pflag.NotExistError) string {
	name, _, _ := strings.Cut(cmp.Or(bad.GetSpecifiedShortnames(), bad.GetSpecifiedName()), "=")
	if flags.Lookup(name) == nil {
		var names []string
		flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name = room.Suggest(name, names)
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean --%s?", name)
}

// Flags adds to flags --config, --check-config and a flag for every key of cfg (the key with - for a dot and _). Once
// they are parsed, load fills cfg, which holds the defaults, from the file of --config, the environment (VESTIBULE_ and
// the key in capitals, _ for a dot) and flags, in increasing precedence. It returns a ConfigError with all faults.
// check is true if --check-config requested only the validation.
func Flags(cfg Config, flags *pflag.FlagSet) (load func() (check bool, err error)) {
	keys := fields(reflect.ValueOf(cfg).Elem(), "")
	file := flags.String("config", "", "YAML configuration file")
	check := flags.Bool("check-config", false,
		"report every fault of the configuration and exit: 0 for none, else 2; warnings are no faults")
	for _, k := range keys {
		switch d := k.value.Interface().(type) {
		case bool:
			flags.Bool(k.flag(), d, k.doc)
		case int:
			flags.Int(k.flag(), d, k.doc)
		case time.Duration:
			flags.Duration(k.flag(), d, k.doc)
		case []string:
			flags.StringSlice(k.flag(), d, k.doc)
		default:
			flags.String(k.flag(), fmt.Sprint(d), k.doc)
		}
	}
	return func() (bool, error) {
		err := fill(cfg, keys, flags, *file)
		return *check, err
	}
}

// fill fills cfg from a file, "" for that of VESTIBULE_CONFIG, the environment and flags.
func fill(cfg Config, keys []field, flags *pflag.FlagSet, file string) error {
	v := viper.New()
	v.SetEnvPrefix("VESTIBULE")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()
	for _, k := range keys {
		v.SetDefault(k.key, k.value.Interface())
		if err := v.BindPFlag(k.key, flags.Lookup(k.flag())); err != nil {
			return fmt.Errorf("flag %s: %w", k.flag(), err)
		}
	}
	if file == "" {
		file = os.Getenv("VESTIBULE_CONFIG")
	}
	if file != "" {
		v.SetConfigFile(file)
		v.SetConfigType("yaml")
		if err := v.ReadInConfig(); err != nil {
			return ConfigError{fmt.Errorf("config: %w", err)}
		}
	}
	lines, err := keyLines(file)
	if err != nil {
		return ConfigError{fmt.Errorf("config: %w", err)}
	}
	given := map[string]bool{}
	for _, k := range keys {
		set := flags.Changed(k.flag()) || os.Getenv(envKey(k.key)) != ""
		if given[k.key] = set || lines[k.key] > 0; set {
			delete(lines, k.key) // the value is not that of the file
		}
	}
	var faults ConfigError
	for _, key := range v.AllKeys() {
		if !slices.ContainsFunc(keys, func(k field) bool { return k.key == key }) {
			if err := unknownKey(key, v.Get(key), keys); err != nil {
				faults = append(faults, err)
			}
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, k := range keys {
		got := v.Get(k.key)
		if got == nil {
			continue // the value of its section is not a section
		}
		if err := v.UnmarshalKey(k.key, k.value.Addr().Interface(), strictDecoding); err != nil {
			if in, ok := errors.AsType[elementError](err); ok {
				got = in
			}
			faults = append(faults, fmt.Errorf("%s: must be %s, got %v", k.key, rules[k.value.Type()], got))
		}
	}
	if c, ok := cfg.(interface{ Given(map[string]bool) }); ok {
		c.Given(given)
	}
	faults = append(faults, cfg.Validate()...)
	for i, err := range faults {
		name, rule, _ := strings.Cut(err.Error(), ":")
		name = name[:strings.IndexAny(name+",", ",[ ")]            // the first of several, the list of an element
		if lines[name] > 0 && !strings.HasPrefix(rule, " line ") { // else the line of a file that the value names
			faults[i] = fmt.Errorf("line %d: %w", lines[name], err)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// keyLines returns the line of every key in a YAML file, "" for none, by its name as viper has it.
func keyLines(file string) (map[string]int, error) {
	lines := map[string]int{}
	if file == "" {
		return lines, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	var walk func(n *yaml.Node, prefix string)
	walk = func(n *yaml.Node, prefix string) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key := prefix + strings.ToLower(n.Content[i].Value)
			lines[key] = n.Content[i].Line
			walk(n.Content[i+1], key+".")
		}
	}
	for _, n := range doc.Content {
		walk(n, "")
	}
	return lines, nil
}

// unknownKey returns the fault of an unknown key, or nil for an empty section.
func unknownKey(key string, value any, keys []field) error {
	for _, k := range keys {
		if strings.HasPrefix(k.key, key+".") {
			if _, defaults := value.(map[string]any); defaults || value == nil {
				return nil
			}
			return fmt.Errorf("%s: must be a section of keys, such as %s", key, k.key)
		}
	}
	return fmt.Errorf("%s: unknown key%s", key, suggestion(key, keys))
}

// suggestion suggests a known key for an unknown one. It also finds the right name in another section.
func suggestion(key string, keys []field) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.key
	}
	s := room.Suggest(key, names)
	for _, name := range names {
		if s == "" && name[strings.LastIndexByte(name, '.')+1:] == key[strings.LastIndexByte(key, '.')+1:] {
			s = name
		}
	}
	if s == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", s)
}

// envKey returns the environment variable of a key.
func envKey(key string) string {
	return "VESTIBULE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// link matches the environment variables that Kubernetes sets in every pod for a service called
// vestibule-something.
var link = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// clientVariables are those of the vestibule command as a client of the API. An operator's shell may export them.
var clientVariables = []string{"VESTIBULE_SERVER", "VESTIBULE_TOKEN", "VESTIBULE_PROFILE"}

// strayVariables returns a fault for every environment variable that looks like a key of cfg but is none. Empty
// ones are ignored.
func strayVariables(cfg Config, environ []string) []error {
	keys := fields(reflect.ValueOf(cfg).Elem(), "")
	var faults []error
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, "VESTIBULE_")
		if !ours || text == "" || rest == "CONFIG" || link.MatchString(name) || slices.Contains(clientVariables, name) ||
			slices.ContainsFunc(keys, func(k field) bool { return envKey(k.key) == name }) {
			continue
		}
		known := make([]string, len(keys))
		for i, k := range keys {
			known[i] = strings.ToLower(envKey(k.key))
		}
		rule := ""
		if s := room.Suggest(strings.ToLower(name), known); s != "" {
			rule = fmt.Sprintf(", did you mean %q?", strings.ToUpper(s))
		}
		faults = append(faults, fmt.Errorf("%s: unknown key in the environment%s", name, rule))
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// rules describe the valid values of a key by type.
var rules = map[reflect.Type]string{
	reflect.TypeFor[string]():        "text",
	reflect.TypeFor[bool]():          "true or false",
	reflect.TypeFor[int]():           "a whole number",
	reflect.TypeFor[time.Duration](): "a duration with its unit, such as 500ms or 5s",
	reflect.TypeFor[[]string]():      "a list of texts",
}

var errType = errors.New("of another type")

// elementError is errType for an element of a list.
type elementError struct{ element any }

func (e elementError) Error() string { return fmt.Sprintf("%v in it", e.element) }

// strictDecoding makes the decoder take YAML values as they are, and parse texts of the environment or a flag by the
// key's type.
func strictDecoding(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput, c.ZeroFields = false, true // otherwise the decoder would write into the default list
	c.DecodeHook = mapstructure.DecodeHookFuncValue(func(from, to reflect.Value) (any, error) {
		raw := from.Interface()
		text, isText := raw.(string)
		_, isDuration := raw.(time.Duration)
		switch to.Interface().(type) {
		case string:
			if from.CanInt() || from.CanFloat() {
				return fmt.Sprint(raw), nil
			}
		case bool:
			if isText {
				return strconv.ParseBool(text)
			}
		case int:
			if isText {
				return strconv.Atoi(text)
			}
			if !from.CanInt() {
				return nil, errType // 1.5 would become 1
			}
		case time.Duration:
			if isText {
				return time.ParseDuration(text)
			}
			if !isDuration {
				return nil, errType // 7 would become 7ns
			}
		case []string:
			if isText {
				list := strings.Split(text, ",")
				for i := range list {
					list[i] = strings.TrimSpace(list[i])
				}
				return slices.DeleteFunc(list, func(s string) bool { return s == "" }), nil
			}
			list, _ := raw.([]any)
			for _, e := range list {
				if _, ok := e.(string); !ok {
					return nil, elementError{e}
				}
			}
		}
		return raw, nil
	})
}

// field is a leaf of a configuration struct.
type field struct {
	key   string
	doc   string
	value reflect.Value
}

// flag returns the name of the field's flag.
func (f field) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(f.key) }

// fields lists the leaves of a configuration struct by dotted key.
func fields(v reflect.Value, prefix string) []field {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, opts, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if strings.Contains(opts, "squash") {
			out = append(out, fields(v.Field(i), prefix)...)
			continue
		}
		if tag == "" {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, fields(v.Field(i), prefix+tag+".")...)
			continue
		}
		out = append(out, field{key: prefix + tag, doc: f.Tag.Get("doc"), value: v.Field(i)})
	}
	return out
}

// A Setting is one key of a configuration, for its reference and the tests of the example files.
type Setting struct {
	Key, Doc string
	Value    any
}

// Settings lists every key of a configuration.
func Settings(cfg Config) (out []Setting) {
	for _, f := range fields(reflect.ValueOf(cfg).Elem(), "") {
		out = append(out, Setting{f.key, f.doc, f.value.Interface()})
	}
	return out
}

// File returns a configuration file with the keys that differ from defaults.
func File(cfg, defaults Config) ([]byte, error) {
	tree, other := map[string]any{}, fields(reflect.ValueOf(defaults).Elem(), "")
	for i, f := range fields(reflect.ValueOf(cfg).Elem(), "") {
		value := f.value.Interface()
		if reflect.DeepEqual(value, other[i].value.Interface()) {
			continue
		}
		if d, ok := value.(time.Duration); ok {
			value = d.String()
		}
		at, path := tree, strings.Split(f.key, ".")
		for _, section := range path[:len(path)-1] {
			below, ok := at[section].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[section] = below
			}
			at = below
		}
		at[path[len(path)-1]] = value
	}
	return yaml.Marshal(tree)
}
