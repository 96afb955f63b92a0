"""Function words and letters by which a short text shows its language.

Owns the tables only: the words every text of a language is held together by, and the letters that
one language has and English never borrows. Nothing here is taken from any test set.
"""

from typing import Final

_TABLE: Final = """
en: i me him them may might shall another some few too very well own the a an is are was were be
    been being am to of in for on with and or not but by at from it its this that these those as
    if when while use uses used do does did done never always must should would could can cannot
    will before after until than over under into then only all any no every each per via you we
    they he she his her their our your my us which who whom whose what where why how many much has
    have had there here so such also just both either neither instead between because about during
    without within against through up out off more most less least other same don't doesn't isn't
    it's let make run keep set get new prefer avoid ensure still once yet where's
es: de la el los las que en a un una unos unas nada algo nadie alguien por con para no se es del
    al lo como más pero sus su le les ya este esta estos estas esto ese esa eso sí porque cuando
    muy sin sobre también hay siempre nunca antes después debe deben ser está están son fue eran
    ha han había y o ni si donde dónde quién quiénes cuál cuáles qué cuánto cuántos cuántas cómo
    entre desde hasta todo todos toda todas cada otro otra nos nosotros usted tiene puede usar usa
    hacer solo mientras tras durante contra mi
pt: de da do das dos o os a as nada algo ninguém um uma uns umas que em no na nos nas por com para
    não se é ao aos à às como mais mas seu sua seus suas já este esta isto esse essa isso porque
    quando muito sem sobre também há sempre nunca antes depois deve devem ser está estão são foi
    foram tem têm pelo pela e ou nem onde quem qual quais quê quanto quantos quantas entre desde
    até todo todos toda todas cada outro outra ele ela eles você pode usar usamos fazer só
    enquanto após durante vem fica ficam
fr: le la les un une des du de et ou que qui dans en sur pour par avec sans ne pas plus se est
    sont été être sera ce cet cette ces il elle ils elles on nous vous je son sa ses leur leurs au
    aux mais donc car comme quand où dont si très aussi toujours jamais avant après doit doivent
    peut peuvent faire fait ont avait quel quelle quels quelles combien comment pourquoi chaque
    tout tous toute toutes entre depuis vers chez même autre autres y lors quoi était notre votre
de: der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine keinen
    ist sind war waren wird werden wurde wurden sein hat haben hatte mit von zu zum zur im in am
    an auf aus bei nach vor für über unter zwischen durch gegen ohne um bis seit wie was wer wen
    wo wann warum welche welcher welches wenn weil dass ob als auch nur noch schon immer nie
    niemals muss müssen soll sollen kann können darf dürfen wir ihr sie er es ich man sich bitte
    statt alle viele vielen jede jeder jedes dieser diese dieses hier dort
it: il lo la i gli le un uno una di a da in con su per tra fra e o ma non che chi cui si è sono
    era erano essere stato stata ha hanno del dello della dei degli delle al allo alla ai agli
    alle dal dallo dalla dai dalle nel nello nella nei nelle sul sulla sui sulle come quando dove
    perché quale quali quanto quanti quante cosa più anche sempre mai prima dopo deve devono può
    possono viene vengono fare solo ogni tutto tutti tutte questo questa questi queste quello suo
    sua loro noi ci
nl: de het een en of maar niet geen is zijn was waren wordt worden werd werden heeft hebben had
    met van voor naar bij uit op aan in om te tot over onder tussen door zonder tegen als dan dat
    die deze dit wie wat waar wanneer waarom hoe welke hoeveel ook nog al altijd nooit moet moeten
    kan kunnen mag mogen zal zullen wij we jij je hij zij ze ik men er hier daar alle elk elke
    omdat gebruik maak
pl: i w z na do od za po pod nad przed przez dla o u ze we nie tak to jest są był była było były
    być się że jak kiedy gdzie kto co który która które których jaki jaka jakie ile dlaczego ale
    lub albo oraz czy już tylko także też zawsze nigdy może mogą musi muszą należy ten ta te tego
    tej tych tym przy bez jego jej ich my wy oni każdy wszystkie wszystkich
ro: și sau dar nu este sunt era erau fost fi a au am ai că ce cine care cât câți câte cum când
    unde de din la pe cu în pentru prin spre până după înainte fără între sub despre un o unei
    unui niște cel cea cei cele al ale lui lor acest această aceste acești acel mai foarte tot
    toate toți doar numai întotdeauna mereu niciodată trebuie poate pot se își îl nici dacă decât
    dintre iar prea
tr: ve veya ya da de bir bu şu o ile için gibi kadar sonra önce değil mi mı mu mü ne nasıl neden
    nerede kim kimin hangi kaç çok daha en her hep hiç asla olarak olan oldu olduğu olmadan ise
    ama fakat çünkü eğer var yok tüm bütün yeni göre tarafından üzerinde arasında içinde etmek
    ettiği yap olmalı gerekir
sv: och eller men inte är var varit vara blev blir har hade ska skall kan måste får med från för
    till på i av om som att det den de en ett när där hur vad vem vilken vilket vilka varför många
    mycket också bara alltid aldrig efter före utan under mellan mot genom detta denna dessa vi ni
    han hon sig sin sitt sina vid än alla varje
da: og eller men ikke er var været være blev bliver har havde skal kan må med fra for til på i af
    om som at det den de en et når hvor hvordan hvad hvem hvilken hvilket hvilke hvorfor mange
    meget også kun altid aldrig efter før uden under mellem mod gennem dette denne disse vi han
    hun sig sin sit ved end alle hver
no: og eller men ikke er var vært være ble blir har hadde skal kan må med fra for til på i av om
    som at det den de en et ei når hvor hvordan hva hvem hvilken hvilket hvilke hvorfor mange mye
    også bare alltid aldri etter før uten under mellom mot gjennom dette denne disse vi han hun
    seg sin ved enn alle hver
fi: ja tai mutta ei ole on oli ovat olivat olla että se ne tämä nämä joka jotka mikä mitä kuka
    missä milloin miksi miten kuinka monta myös vain aina koskaan ennen jälkeen ilman kanssa kun
    jos niin kuin hän he me te sen pitää täytyy voi voidaan käytä älä
cs: a i nebo ale ne není je jsou byl byla bylo byly být v ve na do od za po pod nad před pro při s
    se si z ze o u k ke že jak kdy kde kdo co který která které jaký kolik proč také jen pouze
    vždy nikdy může musí tento tato toto ten ta to jeho její jejich všechny každý podle mezi bez
hu: a az egy és vagy de nem ne van volt vannak voltak lesz lehet kell hogy ha mint mert mikor hol
    ki mi mit melyik hány mennyi hogyan miért is csak már még mindig soha után előtt nélkül között
    ez ezt azt ezek azok minden nagyon meg el fel le be
id: yang dan atau di ke dari untuk dengan pada dalam adalah ini itu tidak bukan jangan sudah belum
    akan bisa dapat harus oleh sebagai karena jika kalau ketika saat setelah sebelum selalu semua
    setiap hanya juga lebih banyak siapa apa mana kapan mengapa bagaimana berapa kami kita mereka
    ada tanpa gunakan antara seperti para
vi: là và của có không được cho với trong các một những này đó khi thì đã sẽ đang phải hãy cũng
    rất từ đến trên dưới sau trước theo như nếu nhưng hoặc ai gì đâu nào bao nhiêu tại sao luôn về
    bởi để
ca: el la els les un una uns unes de del dels al als i o però no que qui en amb per a sense sobre
    és són era eren ser estat ha han hi es com quan on què quin quina quants quantes més també
    sempre mai abans després cal aquest aquesta aquests aquestes
"""

FUNCTION_WORDS: Final[dict[str, frozenset[str]]] = {
    block.split(":", 1)[0]: frozenset(block.split(":", 1)[1].split())
    for block in _TABLE.replace("\n    ", " ").strip().splitlines()
}

# Letters that name a language by themselves; a word that has one counts as one of its words.
LETTERS: Final[dict[str, frozenset[str]]] = {
    "de": frozenset("ß"),
    "pl": frozenset("łąęśżźćń"),
    "ro": frozenset("șțăşţ"),
    "tr": frozenset("ğışİ"),
    "cs": frozenset("řěůďťň"),
    "hu": frozenset("őű"),
    "vi": frozenset("ơưđạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ"),
    "pt": frozenset("ãõ"),
    "es": frozenset("ñ"),
    "sv": frozenset("å"),
    "da": frozenset("øæ"),
}

# First and last code point of a block, and the language it stands for where nothing narrows it.
SCRIPTS: Final[tuple[tuple[int, int, str], ...]] = (
    (0x0370, 0x03FF, "el"),
    (0x0400, 0x052F, "ru"),
    (0x0530, 0x058F, "hy"),
    (0x0590, 0x05FF, "he"),
    (0x0600, 0x077F, "ar"),
    (0x08A0, 0x08FF, "ar"),
    (0x0900, 0x097F, "hi"),
    (0x0980, 0x09FF, "bn"),
    (0x0A00, 0x0A7F, "pa"),
    (0x0A80, 0x0AFF, "gu"),
    (0x0B00, 0x0B7F, "or"),
    (0x0B80, 0x0BFF, "ta"),
    (0x0C00, 0x0C7F, "te"),
    (0x0C80, 0x0CFF, "kn"),
    (0x0D00, 0x0D7F, "ml"),
    (0x0D80, 0x0DFF, "si"),
    (0x0E00, 0x0E7F, "th"),
    (0x0E80, 0x0EFF, "lo"),
    (0x0F00, 0x0FFF, "bo"),
    (0x1000, 0x109F, "my"),
    (0x10A0, 0x10FF, "ka"),
    (0x1100, 0x11FF, "ko"),
    (0x1200, 0x139F, "am"),
    (0x1780, 0x17FF, "km"),
    (0x1F00, 0x1FFF, "el"),
    (0x3040, 0x30FF, "ja"),
    (0x3130, 0x318F, "ko"),
    (0x31F0, 0x31FF, "ja"),
    (0x3400, 0x4DBF, "zh"),
    (0x4E00, 0x9FFF, "zh"),
    (0xAC00, 0xD7AF, "ko"),
    (0xF900, 0xFAFF, "zh"),
    (0xFB1D, 0xFB4F, "he"),
    (0xFB50, 0xFDFF, "ar"),
    (0xFE70, 0xFEFF, "ar"),
    (0xFF66, 0xFF9D, "ja"),
    (0x20000, 0x3134F, "zh"),
)

# Letters that narrow a script down: any of them names the language.
NARROWING: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "ru": (("іїєґІЇЄҐ", "uk"), ("ўЎ", "be"), ("ђћљњџЂЋЉЊЏ", "sr"), ("ѓќѕЃЌЅ", "mk")),
    "ar": (("ٹڈڑے", "ur"), ("پچژگ", "fa")),
    "hi": (("ळ", "mr"),),
}
