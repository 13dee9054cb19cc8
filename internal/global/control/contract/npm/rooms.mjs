// What the official npm client says of the API, told as JSON: see TestTheNpmClientManagesRooms.
import Cloudflare from 'cloudflare';

const { BASE, TOKEN, ZONE, ACCOUNT } = process.env;
const client = new Cloudflare({ apiToken: TOKEN, baseURL: BASE, maxRetries: 5 });
const rooms = client.waitingRooms;
const zone_id = ZONE;
const all = async (pages) => {
  const out = [];
  for await (const one of pages) out.push(one);
  return out;
};
const refused = async (answer) => {
  try {
    await answer;
    return null;
  } catch (err) {
    return { status: err.status, codes: (err.errors ?? []).map((e) => e.code) };
  }
};

const told = {};
const shop = { zone_id, name: 'shop', host: 'shop.example', total_active_users: 300, new_users_per_minute: 200 };
const made = await rooms.create(shop);
told.made = made;
told.twice = await refused(rooms.create(shop));
told.put = await rooms.update(made.id, { ...shop, path: '/sale', session_duration: 10 });
told.edited = await rooms.edit(made.id, { ...shop, path: '/sale', total_active_users: 400 });
told.got = await rooms.get(made.id, { zone_id });
told.zone = (await all(rooms.list({ zone_id, per_page: 5 }))).map((r) => r.name);
told.account = (await all(rooms.list({ account_id: ACCOUNT }))).map((r) => r.name);
told.status = await rooms.statuses.get(made.id, { zone_id });
told.preview = await rooms.page.preview({ zone_id, custom_html: '<p>{{waitTime}}</p>' });
told.settings = [
  await rooms.settings.update({ zone_id, search_engine_crawler_bypass: false }),
  await rooms.settings.edit({ zone_id, search_engine_crawler_bypass: false }),
  await rooms.settings.get({ zone_id }),
];

const rule = (description) => ({ action: 'bypass_waiting_room', expression: 'ip.src in {10.20.30.40}', description });
const [first] = await all(rooms.rules.create(made.id, { zone_id, rules: rule('first') }));
told.rules = {
  edited: await all(rooms.rules.edit(first.id, { zone_id, waiting_room_id: made.id, ...rule('edited') })),
  listed: await all(rooms.rules.get(made.id, { zone_id })),
  replaced: await all(rooms.rules.update(made.id, { zone_id, rules: [rule('one'), { ...rule('two'), expression: 'ssl' }] })),
};
told.rules.deleted = await all(rooms.rules.delete(told.rules.replaced[0].id, { zone_id, waiting_room_id: made.id }));

const at = (hours) => new Date(Math.floor(Date.now() / 1000) * 1000 + hours * 3600_000).toISOString();
const waiting_room_id = made.id;
const launch = { zone_id, waiting_room_id, name: 'launch', event_start_time: at(24), event_end_time: at(25), total_active_users: 500, new_users_per_minute: 400 };
const event = await rooms.events.create(made.id, launch);
const one = { zone_id, waiting_room_id };
told.events = {
  made: event,
  put: await rooms.events.update(event.id, { ...launch, total_active_users: 600 }),
  edited: await rooms.events.edit(event.id, { ...launch, total_active_users: 600, suspended: true }),
  got: await rooms.events.get(event.id, one),
  details: await rooms.events.details.get(event.id, one),
  listed: (await all(rooms.events.list(made.id, { zone_id }))).map((e) => e.name),
  deleted: await rooms.events.delete(event.id, one),
};

told.deleted = await rooms.delete(made.id, { zone_id });
told.gone = await refused(rooms.get(made.id, { zone_id }));
process.stdout.write(JSON.stringify(told));
