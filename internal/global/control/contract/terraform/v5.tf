terraform {
  required_providers {
    cloudflare = {
      source  = "cloudflare/cloudflare"
      version = "VERSION"
    }
  }
}

resource "cloudflare_waiting_room" "small" {
  zone_id              = "ZONE"
  name                 = "small"
  host                 = "shop.example"
  path                 = "/small"
  new_users_per_minute = 200
  total_active_users   = 200
}

resource "cloudflare_waiting_room" "sale" {
  zone_id                   = "ZONE"
  name                      = "sale"
  host                      = "shop.example"
  path                      = "/sale"
  new_users_per_minute      = 400
  total_active_users        = 405
  session_duration          = 10
  queueing_method           = "fifo"
  custom_page_html          = "<p>{{waitTimeFormatted}}</p>"
  default_template_language = "en-US"
  description               = "my desc"
  disable_session_renewal   = true
  suspended                 = true
  queue_all                 = false
  json_response_enabled     = true
  cookie_suffix             = "queue1"
  queueing_status_code      = 200
  enabled_origin_commands   = ["revoke"]
  turnstile_mode            = "invisible"
  turnstile_action          = "log"
  cookie_attributes = {
    samesite = "lax"
    secure   = "auto"
  }
  additional_routes = [
    { host = "shop.example", path = "/tickets" },
    { host = "www.shop.example" },
  ]
}

resource "cloudflare_waiting_room_event" "launch" {
  zone_id                 = "ZONE"
  waiting_room_id         = cloudflare_waiting_room.sale.id
  name                    = "launch"
  event_start_time        = "2099-03-01T10:00:00Z"
  event_end_time          = "2099-03-01T12:00:00Z"
  prequeue_start_time     = "2099-03-01T09:00:00Z"
  total_active_users      = 405
  new_users_per_minute    = 400
  custom_page_html        = "<p>soon</p>"
  queueing_method         = "fifo"
  shuffle_at_event_start  = false
  disable_session_renewal = true
  suspended               = true
  description             = "my desc"
  session_duration        = 10
}

resource "cloudflare_waiting_room_rules" "sale" {
  zone_id         = "ZONE"
  waiting_room_id = cloudflare_waiting_room.sale.id
  rules = [
    {
      action      = "bypass_waiting_room"
      expression  = "ip.src in {192.0.2.1}"
      description = "ip bypass"
      enabled     = true
    },
    {
      action      = "bypass_waiting_room"
      expression  = "http.request.uri.query contains \"bypass=true\""
      description = "query string bypass"
      enabled     = false
    },
  ]
}

resource "cloudflare_waiting_room_settings" "zone" {
  zone_id                      = "ZONE"
  search_engine_crawler_bypass = true
}

data "cloudflare_waiting_rooms" "all" {
  zone_id    = "ZONE"
  depends_on = [cloudflare_waiting_room.sale]
}

data "cloudflare_waiting_room" "sale" {
  zone_id         = "ZONE"
  waiting_room_id = cloudflare_waiting_room.sale.id
}

data "cloudflare_waiting_room_events" "sale" {
  zone_id         = "ZONE"
  waiting_room_id = cloudflare_waiting_room_event.launch.waiting_room_id
}

data "cloudflare_waiting_room_event" "launch" {
  zone_id         = "ZONE"
  waiting_room_id = cloudflare_waiting_room.sale.id
  event_id        = cloudflare_waiting_room_event.launch.id
}

data "cloudflare_waiting_room_rules" "sale" {
  zone_id         = "ZONE"
  waiting_room_id = cloudflare_waiting_room_rules.sale.waiting_room_id
}

data "cloudflare_waiting_room_settings" "zone" {
  zone_id = cloudflare_waiting_room_settings.zone.zone_id
}
