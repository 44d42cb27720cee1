/**
 * Reasons as the daemon tells them, and the same in Spanish. `{1}`, `{2}` … stand for what is filled in. A sentence of
 * the daemon that a person can see on the page and that is missing here fails a test.
 */
export const SPANISH_TEXTS: Readonly<Record<string, string>> = {
  // Calls to the platform
  'The platform refused with HTTP {1}.': 'La plataforma rechazó la llamada (HTTP {1}).',
  'The platform failed with HTTP {1}.': 'La plataforma falló (HTTP {1}).',
  'The platform refused.': 'La plataforma la rechazó.',
  "The platform's answer could not be read: {1} (HTTP {2}, {3}, {4} bytes).":
    'No se pudo leer la respuesta de la plataforma: {1} (HTTP {2}, {3}, {4} bytes).',
  'The platform answered.': 'La plataforma respondió.',
  'A call failed.': 'Una llamada falló.',
  'The platform answers 401 to {1} also with a fresh token.':
    'La plataforma responde 401 a {1} incluso con un token recién renovado.',
  'Stopped while a request was under way.': 'Se detuvo mientras una llamada estaba en curso.',
  'The platform gave no whole answer within {1} ms.':
    'La plataforma no dio una respuesta completa en {1} ms.',
  "The platform's answer is larger than {1} bytes.": 'La respuesta de la plataforma tiene más de {1} bytes.',
  'Since {1} UTC the platform asks for new tokens: {2}.':
    'Desde {1} UTC la plataforma pide tokens nuevos: {2}.',
  'No tokens have been handed in yet.': 'Todavía no se han entregado tokens.',
  'The platform asks to wait with {1} (HTTP 429).': 'La plataforma pide esperar con {1} (HTTP 429).',
  'Stopped before the call was sent.': 'Se detuvo antes de enviar la llamada.',
  'The platform answered 403.': 'La plataforma respondió 403.',
  'The rate budget could not be written.': 'No se pudo guardar el límite de llamadas.',
  'The platform blocked the token (403 to {1}: {2}); all calls rest for {3}.':
    'La plataforma bloqueó el token (403 a {1}: {2}); todas las llamadas esperan {3}.',
  'The platform does not allow {1} with this token (403: {2}), while other calls go through.':
    'La plataforma no permite {1} con este token (403: {2}), aunque otras llamadas sí pasan.',
  'An entry that is nested too deeply to be kept.': 'Un registro con demasiados niveles para guardarlo.',
  'The platform sent a product without an id.': 'La plataforma envió un producto sin id.',
  'The platform gives no reason.': 'La plataforma no da un motivo.',
  'Not sent, the platform would refuse it: {1}.': 'No se envió, la plataforma lo rechazaría: {1}.',
  'New tokens have ended the lock-out.': 'Con los tokens nuevos, la plataforma vuelve a aceptar llamadas.',
  'The tokens could not be renewed; the same token is tried again later.':
    'No se pudieron renovar los tokens; más tarde se prueba otra vez con el mismo.',
  'Stopped while waiting for the tokens.': 'Se detuvo mientras esperaba los tokens.',
  'The platform answers 401 to an access token it issued just now.':
    'La plataforma responde 401 a un token que acaba de entregar.',
  'The tokens were renewed.': 'Los tokens se renovaron.',
  'Renewed tokens were dropped: newer ones are in the store.':
    'Se descartaron tokens renovados: ya hay otros más nuevos guardados.',
  'Renewed tokens cannot be saved yet; they are kept in memory.':
    'Los tokens renovados aún no se pueden guardar; se mantienen en memoria.',
  'The lock-out could not be written.': 'No se pudo guardar que la plataforma pide tokens nuevos.',
  'The platform refuses this refresh token; nothing was changed.':
    'La plataforma rechaza este refresh token; no se cambió nada.',
  'New tokens were handed over and are used with the next call.':
    'Se entregaron tokens nuevos; se usan con la próxima llamada.',
  'Callbacks are off in the configuration.': 'Los avisos están apagados en la configuración.',
  'They carry no secret (401), the last from {1}. {tillsync} webhook set gives the platform the one that is agreed.':
    'Llegan sin clave (401), el último desde {1}. {tillsync} webhook set entrega a la plataforma la clave acordada.',
  'They carry another secret than the one that is agreed (401), the last from {1}. {tillsync} webhook set gives the platform the right one.':
    'Llegan con otra clave que la acordada (401), el último desde {1}. {tillsync} webhook set entrega a la plataforma la correcta.',
  'They are larger than webhook.body_limit, which is {1} bytes (413). Raise it in the configuration, then restart tillsync; until then these orders come by polling.':
    'Son más grandes que webhook.body_limit, que es de {1} bytes (413). Súbalo en la configuración y reinicie tillsync; mientras tanto esos pedidos llegan por consulta.',
  'The order id is not valid text.': 'El id del pedido no es un texto válido.',
  'Check the internet connection and the firewall of this machine; tillsync tries again by itself.':
    'Revise la conexión a internet y el firewall de esta máquina; tillsync reintenta por sí solo.',
  "Check this machine's clock, and platform.base_url.":
    'Revise el reloj de esta máquina y platform.base_url.',
  'Check the address and its port.': 'Revise la dirección y su puerto.',
  'Check the spelling of the address, and the DNS of this machine.':
    'Revise cómo está escrita la dirección y el DNS de esta máquina.',
  '{1} of GET /order/all could not be read as an order; see: {tillsync} quarantine list':
    '{1} de GET /order/all no se pudieron leer como pedido; véalos con: {tillsync} quarantine list',
  'Instant orders are off: no secret for callbacks is set. Orders still arrive within two minutes. To set one, run: {tillsync} webhook rotate-secret':
    'Los pedidos al instante están apagados: no hay clave para los avisos. Los pedidos igual llegan en dos minutos. Para definir una, ejecute: {tillsync} webhook rotate-secret',
  'A callback with the right secret could not be read as an order: {1} It was saved. To see it, run: {tillsync} quarantine list':
    'Un aviso con la clave correcta no se pudo leer como pedido: {1} Quedó guardado. Para verlo, ejecute: {tillsync} quarantine list',
  '{1} is sold in several places. Say which one: {2}.':
    '{1} se vende en varias sucursales. Indique en cuál: {2}.',
  'The orders were of company {1}, and the newest is of {2}.':
    'Los pedidos eran de la empresa {1} y el más nuevo es de {2}.',
  "It is {1} {2} the platform's clock.": 'Está {1} {2} del reloj de la plataforma.',
  behind: 'atrasado respecto',
  'ahead of': 'adelantado respecto',
  'No tokens were handed over yet. Hand them over with: {tillsync} auth set':
    'Todavía no se han entregado tokens. Entréguelos con: {tillsync} auth set',
  'The answer to a token refresh was lost, so the platform has given the new tokens to nobody. Hand in new ones with: {tillsync} auth set':
    'Se perdió la respuesta a una renovación de tokens, así que nadie tiene los nuevos. Entregue otros con: {tillsync} auth set',
  'The platform refused the refresh token. Hand in new ones with: {tillsync} auth set':
    'La plataforma rechazó el refresh token. Entregue tokens nuevos con: {tillsync} auth set',
  'Get a new token pair from the company panel or the support, then run: {tillsync} auth set':
    'Obtenga tokens nuevos en el panel de la empresa o con el soporte y después ejecute: {tillsync} auth set',
  'To move this store to the other company: {tillsync} auth set --other-company':
    'Para pasar esta tienda a la otra empresa: {tillsync} auth set --other-company',
  '{1} held until a person releases or drops {2}. See why: {tillsync} outbox list --state held':
    '{1}: retenidos hasta que una persona los apruebe o descarte. Vea por qué: {tillsync} outbox list --state held',
  '{1} did not arrive and will not be sent again automatically. See why: {tillsync} outbox list --state rejected':
    '{1}: no llegaron y no se envían otra vez por sí solos. Vea por qué: {tillsync} outbox list --state rejected',
  'Changes wait until the platform has been given new tokens. Hand them in with: {tillsync} auth set':
    'Los cambios esperan hasta que haya tokens nuevos. Entréguelos con: {tillsync} auth set',
  'Cannot reach the platform: {1} ({2}).': 'No se puede conectar con la plataforma: {1} ({2}).',
  'the name {host} was not found': 'no se encontró el nombre {host}',
  '{host} refuses connections on port {port}': '{host} rechaza conexiones en el puerto {port}',
  'there is no way through the network to {host}': 'no hay camino por la red hasta {host}',
  'this machine is not connected to a network that leads to {host}':
    'esta máquina no está conectada a una red que llegue a {host}',
  '{host} did not answer on port {port}': '{host} no respondió en el puerto {port}',
  'the certificate of {host} is signed by nobody this machine trusts':
    'el certificado de {host} no está firmado por nadie en quien esta máquina confíe',
  'the certificate of {host} has expired': 'el certificado de {host} está vencido',
  'the certificate of {host} is not valid yet': 'el certificado de {host} todavía no es válido',
  'the certificate there is not one of {host}': 'el certificado de ahí no es de {host}',
  'an answer with new tokens was lost on its way, and the platform takes the old refresh token no more':
    'una respuesta con tokens nuevos se perdió en el camino y la plataforma ya no acepta el refresh token anterior',
  'the platform refused the refresh token as invalid, expired or revoked':
    'la plataforma rechazó el refresh token por inválido, vencido o revocado',
  'Cannot reach the platform: {1}{2}.': 'No se puede conectar con la plataforma: {1}{2}.',
  'The platform gave no whole answer within {1} s.': 'La plataforma no dio una respuesta completa en {1} s.',
  'These tokens are of company {1}, and this store is of company {2}. Nothing was changed.':
    'Estos tokens son de la empresa {1} y esta tienda es de la empresa {2}. No se cambió nada.',
  'A refresh that nobody waited for any more failed.':
    'Falló una renovación de tokens que ya nadie esperaba.',
  'The company of the tokens could not be noted.': 'No se pudo anotar de qué empresa son los tokens.',
  // Orders
  'Stopped before the orders were polled.': 'Se detuvo antes de consultar los pedidos.',
  'Another process has polled meanwhile; this answer was left unused.':
    'Otro proceso consultó mientras tanto; esta respuesta no se usó.',
  'The answer of GET /order/all holds no list of orders that tillsync can find. It was kept whole in the quarantine and nothing was mirrored from it.':
    'En la respuesta de GET /order/all no se encuentra una lista de pedidos. Quedó guardada completa en cuarentena y no se usó nada de ella.',
  'The answer of GET /order/all speaks of further pages, and no parameter is configured to ask for them; orders may be missing. Set orders.page_parameter.':
    'La respuesta de GET /order/all tiene más páginas y no está configurado cómo pedirlas; pueden faltar pedidos. Defina orders.page_parameter.',
  'No complete order poll for {1}: {2}': 'Sin una consulta completa de pedidos desde hace {1}: {2}',
  'No list of orders was found in the answer of GET /order/all; its place can be configured.':
    'No se encontró una lista de pedidos en la respuesta de GET /order/all; se puede configurar dónde está.',
  'The record is not UTF-8 text.': 'El registro no es texto UTF-8.',
  'Stopped while mirroring an answer; what was mirrored so far is kept.':
    'Se detuvo mientras guardaba una respuesta; lo que ya se guardó queda.',
  'An order was expected, found {1}.': 'Se esperaba un pedido y llegó {1}.',
  'The order id is a number too large to be exact.':
    'El id del pedido es un número demasiado grande para ser exacto.',
  'No order id was found; its names are: {1}.': 'No se encontró el id del pedido; los campos son: {1}.',
  'It is not JSON.': 'No es JSON.',
  'The answer is cut off after {1} bytes; nothing of it was mirrored.':
    'La respuesta está cortada después de {1} bytes; no se guardó nada de ella.',
  'The answer is not JSON at byte {1}, where {2} was expected; nothing of it was mirrored.':
    'La respuesta no es JSON en el byte {1}, donde se esperaba {2}; no se guardó nada de ella.',
  'The last {1} came only by polling; no callback announced {2}.':
    'Los últimos ({1}) llegaron solo por consulta; ningún aviso los anunció ({2}).',
  'Check that the webhook is active ({tillsync} webhook show) and that its address reaches this machine ({tillsync} webhook test).':
    'Revise que el webhook esté activo ({tillsync} webhook show) y que su dirección llegue a esta máquina ({tillsync} webhook test).',
  'The platform sends callbacks to {1}, not to {2}. Somebody changed it; `{tillsync} webhook set` puts it back.':
    'La plataforma envía los avisos a {1} y no a {2}. Alguien lo cambió; `{tillsync} webhook set` lo repone.',
  'Stopped before the platform was told.': 'Se detuvo antes de informar a la plataforma.',
  'The platform took the webhook, but {1}.': 'La plataforma aceptó el webhook, pero {1}.',
  'The webhook is switched off.': 'El webhook está apagado.',
  'No callback has come since tillsync was started.':
    'No ha llegado ningún aviso desde que se inició tillsync.',
  'The body is not UTF-8 text.': 'El contenido no es texto UTF-8.',
  'The body is empty.': 'El contenido está vacío.',
  'The body is not JSON.': 'El contenido no es JSON.',
  'The notification could not be taken apart ({1}).': 'No se pudo interpretar el aviso ({1}).',
  'The mirror could not take this order ({1}).': 'La copia local no pudo guardar este pedido ({1}).',
  'The store gave no outcome.': 'La base de datos no dio un resultado.',
  // Catalogue
  'No branches are configured, so no catalogue is mirrored.':
    'No hay sucursales configuradas, así que no se lee ningún catálogo.',
  'The catalogue in the mirror is not complete: {1}': 'El catálogo local no está completo: {1}',
  'The product list of branch {1} changed under each of {2} readings. What was read is in the mirror; nothing was taken for vanished.':
    'La lista de productos de la sucursal {1} cambió durante cada una de {2} lecturas. Lo leído quedó guardado; ningún producto se dio por eliminado.',
  'Stopped while another process reads the catalogue.': 'Se detuvo mientras otro proceso lee el catálogo.',
  'Another process has begun to read the catalogue; this reading was left.':
    'Otro proceso empezó a leer el catálogo; esta lectura se dejó.',
  'An entry of GET /product/list could not be read whole as a product.':
    'Un registro de GET /product/list no se pudo leer completo como producto.',
  // Changes and why they are rejected or held
  'Sent several times; the platform does not say why it has another value.':
    'Se envió varias veces; la plataforma no dice por qué tiene otro valor.',
  'Sent several times; the platform does not say that it took it, and the product does not show it.':
    'Se envió varias veces; la plataforma no dice que lo aceptó y el producto no lo muestra.',
  'Sent several times; the platform does not say that it took it, nor show the product.':
    'Se envió varias veces; la plataforma no dice que lo aceptó ni muestra el producto.',
  'The answer did not say whether it was taken; it is sent again.':
    'La respuesta no dijo si fue aceptado; se envía otra vez.',
  'Not known to have arrived ({1}); it is sent again.': 'No se sabe si llegó ({1}); se envía otra vez.',
  'It is not known to have arrived; it is sent again.': 'No se sabe si llegó; se envía otra vez.',
  'The platform has this value already.': 'La plataforma ya tiene este valor.',
  'Refused.': 'Rechazado.',
  'tillsync stopped while it was under way; it is sent again.':
    'tillsync se detuvo mientras se enviaba; se envía otra vez.',
  'Released by a person.': 'Aprobado por una persona.',
  'Dropped by a person.': 'Descartado por una persona.',
  'Tried again as change {1}.': 'Se intentó otra vez como cambio {1}.',
  'Replaced by change {1}.': 'Reemplazado por el cambio {1}.',
  'There is no change {1} in the outbox.': 'No existe el cambio {1}.',
  'Change {1} {2}. Nothing was changed.': 'El cambio {1} {2}. No se cambió nada.',
  'Sent again as {1}, since orders changed.': 'Se envió otra vez como {1}, porque cambiaron pedidos.',
  'Sent as {1}: {2} are sold online and not booked: {3} {4}.':
    'Enviado como {1}: {2} se vendieron en línea y no están registrados en la caja: {3} {4}.',
  'From a restored backup: the platform may have a newer value, so a person decides.':
    'De un respaldo restaurado: la plataforma puede tener un valor más nuevo, así que decide una persona.',
  '{1} stocks would go to zero at once; {2} are allowed (guard.zero_items_max).':
    '{1} stocks quedarían en cero a la vez; se permiten {2} (guard.zero_items_max).',
  'The price would go from {1} to {2}; a factor of {3} is allowed (guard.price_factor_max).':
    'El precio pasaría de {1} a {2}; se permite multiplicar o dividir por {3} (guard.price_factor_max).',
  'The inventory lacks {1} of {2} known stocks ({3} %); {4} % are allowed (guard.missing_share_max).':
    'Al inventario le faltan {1} de {2} stocks conocidos ({3} %); se permite {4} % (guard.missing_share_max).',
  'The platform counted {1} items of {2} that were sent.':
    'La plataforma contó {1} productos de {2} enviados.',
  'The platform did not say how many items it updated.': 'La plataforma no dijo cuántos productos actualizó.',
  'The platform updated {1} of {2} items and named {3} as discarded.':
    'La plataforma actualizó {1} de {2} productos y nombró {3} como descartados.',
  'The platform discarded an item without saying which: {1}':
    'La plataforma descartó un producto sin decir cuál: {1}',
  'The platform knows no product with {1}.': 'La plataforma no conoce ningún producto con {1}.',
  'No configured branch lists a product with {1}.': 'Ninguna sucursal configurada tiene un producto con {1}.',
  'externalId {1} is no mapping of sku {2}.': 'El id externo {1} no corresponde al SKU {2}.',
  'externalId {1} is no mapping of sku {2}; it belongs to {3}.':
    'El id externo {1} no corresponde al SKU {2}; pertenece a {3}.',
  'externalId {1} stands for several products: {2}. Name the sku.':
    'El id externo {1} corresponde a varios productos: {2}. Indique el SKU.',
  '{1} is not in branch {2}; it is {3}.': '{1} no está en la sucursal {2}; está en {3}.',
  'subsidiaryExternalId {1} is branch {2}, not {3}.': 'subsidiaryExternalId {1} es la sucursal {2}, no {3}.',
  'sku {1} shares every externalId in branch {2} with another product.':
    'El SKU {1} comparte todos sus ids externos en la sucursal {2} con otro producto.',
  'sku {1} has no externalId; map it on the platform first.':
    'El SKU {1} no tiene id externo; asígnelo primero en la plataforma.',
  'sku {1} is not a number and has no externalId to name it by.':
    'El SKU {1} no es un número y no tiene un id externo para nombrarlo.',
  'The configuration does not say which subsidiaryId branch {1} has; sku {2} is {3}.':
    'La configuración no dice qué subsidiaryId tiene la sucursal {1}; el SKU {2} está en {3}.',
  'A change without sku and externalId was not read.': 'Un cambio sin SKU ni id externo no se leyó.',
  'None of price, name, description and show is there.':
    'No trae precio, nombre, descripción ni visibilidad.',
  'qty is missing.': 'Falta la cantidad (qty).',
  'qty is missing; the platform takes show only with a quantity.':
    'Falta la cantidad (qty); la plataforma acepta show solo junto a una cantidad.',
  'name is empty.': 'El nombre está vacío.',
  'Neither externalId nor sku says which product is meant.':
    'Ni externalId ni sku dicen de qué producto se trata.',
  '{1} is not an object with columns.': '{1} no es un registro con columnas.',
  '{1} is no column of a {2} change ({3}).': '{1} no es una columna de un cambio de {2} ({3}).',
  '{1} is null; leave it out to keep it as it is.': '{1} es null; omítalo para dejarlo como está.',
  '{1} {2} is not valid UTF-8 text.': '{1} {2} no es texto UTF-8 válido.',
  '{1} is not a number.': '{1} no es un número.',
  '{1} is negative.': '{1} es negativo.',
  '{1} is too large to be kept exactly.': '{1} es demasiado grande para guardarlo exacto.',
  '{1} is neither true nor false.': '{1} no es true ni false.',
  '{1} is not a text.': '{1} no es un texto.',
  '{1} is too long.': '{1} es demasiado largo.',
  '{1} is not a text; write it in quotes.': '{1} no es un texto; escríbalo entre comillas.',
  '{1} is empty.': '{1} está vacío.',
  '{1} is not a whole number that can be kept exactly.':
    '{1} no es un número entero que se pueda guardar exacto.',
  '{1} contains a NUL character.': '{1} contiene un carácter NUL.',
  // Storage
  'The inbox {1} was replaced while it was opened.': 'El buzón {1} se reemplazó mientras se abría.',
  'There is no {1}.': 'No existe {1}.',
  'Have whoever looks after the POS check inbox.db, what lies beside it, and the disk.':
    'Pida a quien cuida el punto de venta que revise inbox.db, lo que hay a su lado y el disco.',
  'The inbox {1} could not be read or emptied within {2} s.':
    'El buzón {1} no se pudo leer o vaciar en {2} s.',
  'Stopped while looking into the inbox.': 'Se detuvo mientras miraba el buzón.',
  'The program that looks into the inbox {1} ended twice ({2}).':
    'El programa que mira el buzón {1} terminó dos veces ({2}).',
  '{1} It is kept as {2}; a new inbox is in its place. Changes that were not taken in yet are in the old file.':
    '{1} Se guardó como {2} y hay un buzón nuevo en su lugar. Los cambios que no se habían tomado están en el archivo antiguo.',
  '{1} was {2} and no plain file, so the inbox could not be used. It was moved to {3}; the inbox is used again.':
    '{1} era {2} y no un archivo normal, así que no se podía usar el buzón. Se movió a {3}; el buzón se usa otra vez.',
  'The inbox {1} {2}. Changes that were not taken in yet went with the old file.':
    'El buzón {1} {2}. Los cambios que no se habían tomado se fueron con el archivo antiguo.',
  'The inbox {1} cannot be used. SQLite says: {2}.': 'No se puede usar el buzón {1}. SQLite dice: {2}.',
  'The inbox {1} cannot be used. {2}.': 'No se puede usar el buzón {1}. {2}.',
  'The inbox {1} is locked by {2}.': 'El buzón {1} está bloqueado por {2}.',
  'Close or restart {1}: it keeps a transaction open.':
    'Cierre o reinicie {1}: mantiene abierta una transacción.',
  '{1} mirror.db locked: callbacks are put off (503), and polls keep nothing.':
    '{1} mirror.db bloqueado: los avisos se postergan (503) y las consultas no guardan nada.',
  'The inbox was damaged and made anew. What the POS had put into it and tillsync had not taken in is in {1}. Have the POS hand it over again, then move the file away.':
    'El buzón estaba dañado y se creó de nuevo. Lo que la caja dejó en él y tillsync no había tomado está en {1}. Haga que la caja lo entregue otra vez y después mueva ese archivo.',
  'A row breaks a rule of the database ({1}).': 'Un registro no cumple una regla de la base de datos ({1}).',
  '{1} of {2} are free.': 'Quedan libres {1} de {2}.',
  'Only {1} of {2} are free.': 'Quedan libres solo {1} de {2}.',
  "The mirror's log grew to about {1} MiB because {2} keeps a read of it open; end that read.":
    'El registro de la base local creció a unos {1} MiB porque {2} mantiene abierta una lectura; termínela.',
};
