package api

// GivenName returns the name that the settings of a change give, the later if it has one: that of a token or a webhook,
// whose Name is an ID. "" for none.
func (c *AppliedChange) GivenName() string {
	for _, s := range c.Settings {
		if s.Key != "name" {
			continue
		}
		for _, v := range []any{s.After, s.Before} {
			if text, ok := v.(string); ok && text != "" {
				return text
			}
		}
	}
	return ""
}
