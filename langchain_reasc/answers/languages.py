"""Words by which a reader of responses finds the answer, in 16 languages.

Some words of one language mean something else in another (Polish "to" is "is", French
"son" is "his", Turkish "son" is "final", Portuguese "no" is "in the"). So combine the
words of one language, and use :func:`words` only where a word of any language has the
same effect. Words are whole words, except in Chinese, Japanese and Korean.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Language:
    """Words of one language, in lower case and NFC. Quotation marks are straight.

    Attributes:
        code: the code of ISO 639-1.
        answer: nouns for the answer. Nouns that usually head the working ("Решение:")
            are missing.
        copula: what links the noun and the answer. In Japanese and Korean it is a
            particle after the noun.
        after: words around the answer that are not part of it: before it ("therefore"),
            or after it ("です"). Several may follow each other. Those with an apostrophe
            are suffixes.
        article: articles. Those with an apostrophe are prefixes.
        preposition: prepositions before a date, a time or a place, and what stands for
            them, such as "klockan".
        yes: words for yes.
        no: words for no.
        conjunction: words for and. In Korean they end the word before, in Arabic they
            begin the next word, and in Chinese and Japanese nothing separates them from
            either.
        alternative: words for or.
        condition: what limits a yes or a no, as in "Yes, but only with consent".
        reason: what begins an explanation after an answer. Some count only after a
            comma, which is part of them.
        negation: words that negate.
        months: the names of the twelve months, with abbreviations. Abbreviations that
            are common words are missing.
        choice: nouns beside the letter of an option.
        letters: the letters of options in scripts other than Latin, in order; in upper
            case.
        correct: adjectives for a right or final answer.
        scale: multipliers after a number, each with its power of ten.
        cannot: beginnings of sentences that say that the speaker cannot answer.
            Sentences that may be the answer, such as "It cannot be determined", are
            missing.
        correction: beginnings of sentences that correct an answer.
        courtesy: beginnings of courtesies before or after the answer.
        function_word: further words that say nothing themselves.
        have: verbs that link a subject with what it has; in Russian also the dash for
            "is".
        common: further words by which the language is recognized, if it is one of those
            in Latin script.
        decimal_comma: whether 3,5 is three and a half.
    """

    code: str
    answer: tuple[str, ...]
    copula: tuple[str, ...]
    after: tuple[str, ...]
    article: tuple[str, ...]
    preposition: tuple[str, ...]
    yes: tuple[str, ...]
    no: tuple[str, ...]
    conjunction: tuple[str, ...]
    alternative: tuple[str, ...]
    condition: tuple[str, ...]
    reason: tuple[str, ...]
    negation: tuple[str, ...]
    months: tuple[tuple[str, ...], ...]
    choice: tuple[str, ...]
    letters: str
    correct: tuple[str, ...]
    scale: tuple[tuple[str, int], ...]
    cannot: tuple[str, ...]
    correction: tuple[str, ...]
    courtesy: tuple[str, ...]
    function_word: tuple[str, ...] = ()
    have: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    decimal_comma: bool = False


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in text.split("|") if word.strip())


def _powers(text: str) -> tuple[tuple[str, int], ...]:
    """Return the words and powers in "thousand 3, million|millions 6"."""
    powers: list[tuple[str, int]] = []
    for entry in text.split(","):
        names, _, power = entry.strip().rpartition(" ")
        powers += [(name, int(power)) for name in _alternatives(names)]
    return tuple(powers)


def _language(
    code: str,
    *,
    months: str,
    scale: str,
    letters: str = "",
    decimal_comma: bool = False,
    **fields: str,
) -> Language:
    """Return a language from strings of alternatives, which ``|`` separates."""
    return Language(
        code=code,
        months=tuple(_alternatives(month) for month in months.split(",")),
        scale=_powers(scale),
        letters=letters,
        decimal_comma=decimal_comma,
        **{name: _alternatives(text) for name, text in fields.items()},
    )


LANGUAGES: Final = (
    _language(
        "en",
        answer="answer|answers|ans|solution|result",
        copula="""is|are|was|were|equals|is equal to|would be|will be|must be|should be|has to be|comes to|comes out to|
            comes out as|becomes|=""",
        after="therefore|thus|hence|then|indeed|simply|clearly|exactly|precisely",
        article="the|a|an",
        preposition="in|on|at",
        yes="yes|yeah|yep|yup",
        no="no|nope|nah",
        conjunction="and|&",
        alternative="or",
        condition="""but|only|with|without|except|unless|if|provided|providing|as long as|so long as|until|till|however|
            although|though|subject to|depending|depends|assuming|when|whenever|once|after|before|in case|under""",
        reason="""because|since|given that|due to|thanks to|for example|for instance|, that is|i.e.|e.g.|namely|
            , as|, so|
            , given|, which|, who|, whose|, where""",
        negation="""not|isn't|aren't|wasn't|weren't|doesn't|don't|didn't|cannot|can't|couldn't|won't|wouldn't|shouldn't|
            hasn't|haven't|hadn't|never|neither|nor|none|nothing|nobody""",
        months="""january|jan, february|feb, march|mar, april|apr, may, june|jun, july|jul, august|aug,
            september|sep|sept, october|oct, november|nov, december|dec""",
        choice="option|choice|letter|alternative|statement|answer choice|answer",
        correct="correct|right|final|best|true|exact|most likely|most accurate|most appropriate",
        scale="""thousand 3, lakh|lakhs 5, million|millions|mio|mln|mn 6, crore|crores 7, billion|billions|bn 9,
            trillion|trillions|tn 12""",
        cannot="""i cannot|i can't|i can not|i could not|i couldn't|i am unable|i'm unable|i am not able|i'm not able|
            i don't know|i do not know|i'm not sure|i am not sure|i'm sorry, but|i am sorry, but|i'm sorry you|
            i'm afraid i|i'm not a |i'm sorry, i can't|
            i'm sorry, i cannot|i'm sorry, i don't|i am sorry, i cannot|sorry, but|sorry, i can't|sorry, i cannot|
            sorry, i don't|i apologize, but|i don't have|i do not have|i need more|i would need|i'd need|i must decline|
            i won't be able|unfortunately, i|unfortunately i|i have no information|i have no access|i have no idea|
            there is not enough information for me|as an ai|as a language model|as a large language model""",
        correction="""wait|sorry, i meant|actually|hold on|correction|i made a mistake|i made an error|i was wrong|
            my mistake|oops|
            let me correct|let me redo|let me recalculate|no, let me redo|sorry, that is wrong|sorry, that's wrong|
            scratch that|strike that|on second thought|i apologize for the|
            i misread|i miscalculated""",
        courtesy="""let me know|please let me know|i hope this|i hope that helps|hope this|hope that helps|feel free|
            please feel free|if you have any|if you have more|if you need any|if you need more|if you need further|
            if you'd like|if you would like|would you like|do you want me to|is there anything else|don't hesitate|sure|
            certainly|of course|great question|good question|excellent question|happy to help|glad to help|i'd be happy|
            i'm happy to|you're welcome|you are welcome|thank you for|thanks for|good luck|here is|here's|here are""",
        function_word="""of|and|to|for|with|by|from|into|onto|as|than|that|which|who|whom|whose|has|have|had|do|does|did|can|
            should|would|must|could|been|being|be|also|statement|claim|sentence|correct|best|option|choice|
            alternative|letter""",
        have="has|have|had",
        common="how|what|which|who|when|where|does|do|did|many|much|of|to|for|this|that|there|it|from|by|with",
    ),
    _language(
        "es",
        answer="respuesta|respuestas|solución|resultado",
        copula="""es|son|fue|fueron|era|eran|está|están|estaba|sería|serían|será|serán|debe ser|sería de|es de|
            es igual a|equivale a""",
        after="por lo tanto|por tanto|entonces|pues|exactamente|simplemente|precisamente",
        article="el|la|los|las|un|una|unos|unas",
        preposition="en|el|a|a la|a las|al|en el|en la|en los|en las",
        yes="sí",
        no="no",
        conjunction="y|e",
        alternative="o|u",
        condition="""pero|solo|sólo|solamente|únicamente|con|sin|excepto|salvo|a menos que|a no ser que|si|siempre que|
            siempre y cuando|mientras|hasta|cuando|aunque|sin embargo|dependiendo|depende|según|bajo|en caso de|
            después de|antes de""",
        reason="""porque|ya que|puesto que|dado que|debido a|gracias a|por ejemplo|es decir|por lo que|así que|, pues|
            , que|, lo que|, lo cual|, el cual|, la cual|, donde""",
        negation="no|nunca|jamás|ni|tampoco|ningún|ninguno|ninguna|nada|nadie",
        months="""enero|ene, febrero|feb, marzo|mar, abril|abr, mayo|may, junio|jun, julio|jul, agosto,
            septiembre|setiembre|sep|sept, octubre|oct, noviembre|nov, diciembre|dic""",
        choice="opción|letra|alternativa|inciso|respuesta|afirmación",
        correct="""correcta|correcto|correctas|correctos|final|definitiva|definitivo|verdadera|verdadero|exacta|exacto|
            mejor""",
        scale="""mil 3, millón|millones 6, mil millones|millardo|millardos 9, billón|billones 12""",
        cannot="""no puedo|no podría decir|no soy capaz|no me es posible|no sé|no lo sé|no tengo|no dispongo|
            no estoy seguro|no estoy segura|lo siento, pero|lo siento, no puedo|lo siento, no tengo|lo siento, no sé|
            lamento, pero|lamentablemente, no puedo|lamentablemente no puedo|lamentablemente, no tengo|
            lamentablemente no tengo|desafortunadamente, no puedo|desafortunadamente no puedo|
            desafortunadamente, no tengo|necesito más|necesitaría|como ia|como una ia|como inteligencia artificial|
            como modelo de lenguaje|como un modelo de lenguaje""",
        correction="""espera|espere|en realidad|corrección|me equivoqué|me he equivocado|cometí un error|
            he cometido un error|permíteme corregir|permítame corregir|déjame corregir|déjame recalcular|
            pensándolo bien|mejor dicho|perdón, me equivoqué|rectifico""",
        courtesy="""espero que esto|espero que te|espero que le|espero haber|si tienes alguna|si tiene alguna|
            si tienes más|si tiene más|si tienes otra|si tiene otra|si necesitas más|si necesita más|no dudes en|
            no dude en|avísame|házmelo saber|hágamelo saber|claro|por supuesto|desde luego|con gusto|con mucho gusto|
            buena pregunta|excelente pregunta|gran pregunta|aquí tienes|aquí tiene|aquí está|aquí están|gracias por|
            te gustaría que|quieres que""",
        function_word="de|del|que|y",
        have="tiene|tienen|tenía",
        common="qué|cuál|cuántos|cuántas|cuánto|cómo|quién|cuándo|dónde|cuesta|de|del|que|por|para|hay",
        decimal_comma=True,
    ),
    _language(
        "fr",
        answer="réponse|réponses|solution|résultat",
        copula="""est|sont|était|étaient|fut|serait|seraient|sera|seront|vaut|c'est|est de|était de|est égal à|
            est égale à|doit être|devrait être""",
        after="donc|ainsi|alors|exactement|précisément|simplement",
        article="le|la|les|l'|un|une|du|des|de la|de l'",
        preposition="en|à|au|aux|le|dans|sur|à la|à l'",
        yes="oui|ouais",
        no="non",
        conjunction="et",
        alternative="ou",
        condition="""mais|seulement|uniquement|avec|sans|sauf|excepté|hormis|à moins|si|s'il|s'ils|à condition|
            tant que|tant qu'|jusqu'à|jusqu'au|jusqu'en|quand|lorsque|lorsqu'|bien que|bien qu'|cependant|toutefois|
            pourvu que|pourvu qu'|selon|en cas de|après|avant|sous""",
        # "car" alone is a vehicle in English.
        reason="""parce que|parce qu'|car il|car elle|car ils|car elles|car le|car la|car les|car l'|car ce|car c'|
            car cela|car un|car une|car nous|puisque|puisqu'|étant donné|vu que|vu qu'|en raison|grâce à|grâce au|
            à cause de|à cause du|par exemple|c'est-à-dire|, qui|, ce qui|, dont|, où|, soit""",
        negation="ne|n'|pas|non|jamais|ni|aucun|aucune|rien",
        months="""janvier|janv, février|fév|févr, mars, avril|avr, mai, juin, juillet|juil, août, septembre|sept,
            octobre|oct, novembre|nov, décembre|déc""",
        choice="option|lettre|choix|proposition|réponse|affirmation",
        correct="""bonne|bon|correcte|correct|finale|final|exacte|exact|juste|vraie|vrai|définitive|définitif|
            meilleure""",
        # "billion" is 10^12, but often translates the English word.
        scale="mille 3, million|millions|mio 6, milliard|milliards|mrd 9, mille milliards 12",
        cannot="""je ne peux|je ne suis pas en mesure|je ne suis pas capable|je ne suis pas sûr|je ne suis pas sûre|
            je suis incapable|je ne sais pas|je ne connais pas|je n'ai pas|je ne dispose pas|je suis désolé, mais|
            je suis désolée, mais|je suis désolé, je ne|désolé, mais|désolée, mais|désolé, je ne|désolée, je ne|
            malheureusement, je|malheureusement je|j'ai besoin de plus|j'aurais besoin|il me faudrait|je regrette, mais|
            en tant qu'ia|en tant qu'intelligence artificielle|en tant que modèle""",
        correction="""attends|attendez|en fait|en réalité|correction|rectification|je me suis trompé|
            je me suis trompée|j'ai fait une erreur|j'ai commis une erreur|permettez-moi de corriger|
            laissez-moi corriger|laisse-moi corriger|je corrige|à la réflexion|au temps pour moi|autant pour moi""",
        courtesy="""j'espère que|n'hésitez pas|n'hésite pas|si vous avez d'autres|si vous avez des questions|
            si vous avez besoin|si tu as d'autres|si tu as des questions|si tu as besoin|si vous souhaitez que|
            souhaitez-vous|veux-tu que|dites-moi si|dis-moi si|faites-moi savoir|bien sûr|certainement|volontiers|
            avec plaisir|bonne question|très bonne question|excellente question|voici|voilà|merci pour|merci de""",
        function_word="de|du|des|que|qui|et",
        have="a|ont|avait",
        common="quel|quelle|quels|combien|comment|qui|quand|où|coûte|de|il|elle|pour|que|dans|y|a",
        decimal_comma=True,
    ),
    _language(
        "de",
        answer="antwort|antworten|lösung|lösungen|ergebnis|endergebnis|resultat",
        copula="""ist|sind|war|waren|wäre|wären|lautet|lauten|lautete|beträgt|betragen|betrug|ergibt|ist gleich|
            muss sein|sollte sein""",
        after="also|somit|daher|folglich|demnach|damit|nun|dann|genau|exakt",
        article="der|die|das|den|dem|des|ein|eine|einen|einem|einer|eines",
        preposition="in|im|am|um|an|auf|in der|in den|in dem|an der|auf der|auf dem",
        yes="ja|jawohl|jep",
        no="nein|nö|nee",
        conjunction="und",
        alternative="oder|bzw.|beziehungsweise",
        condition="""aber|nur|lediglich|mit|ohne|außer|ausser|ausgenommen|es sei denn|wenn|falls|sofern|solange|soweit|
            bis|jedoch|allerdings|obwohl|unter|vorausgesetzt|je nach|abhängig|nach|vor|bei""",
        # "da" alone is also "there".
        reason="""weil|denn|da der|da die|da das|da es|da sie|da er|da ein|da eine|da wir|da man|da dies|da diese|
            aufgrund|wegen|zum beispiel|z. b.|z.b.|das heißt|d. h.|d.h.|nämlich|, was|, welche|, welcher|, welches|
            , wobei|, wo|, sodass|, also""",
        negation="""nicht|kein|keine|keinen|keinem|keiner|keines|nie|niemals|weder|nichts|niemand|nirgends""",
        months="""januar|jänner|jan, februar|feber|feb, märz|mär|mrz, april|apr, mai, juni|jun, juli|jul, august|aug,
            september|sep|sept, oktober|okt, november|nov, dezember|dez""",
        choice="option|buchstabe|antwort|antwortmöglichkeit|antwortoption|auswahl|aussage|möglichkeit",
        correct="""richtig|richtige|richtigen|korrekt|korrekte|korrekten|endgültig|endgültige|endgültigen|finale|
            finalen|beste|besten|exakte|genaue|wahre""",
        scale="""tausend|tsd 3, million|millionen|mio 6, milliarde|milliarden|mrd 9, billion|billionen 12""",
        cannot="""ich kann nicht|ich kann leider|ich kann keine|ich kann das nicht|ich kann es nicht|
            ich kann dies nicht|ich kann diese frage nicht|ich kann die frage nicht|ich kann dir nicht|
            ich kann ihnen nicht|ich kann dir leider|ich kann ihnen leider|ich bin nicht in der lage|
            ich bin leider nicht|ich bin mir nicht sicher|ich weiß nicht|ich weiß es nicht|ich weiß das nicht|
            ich habe keine|ich habe nicht|ich habe leider|mir fehlen|mir liegen keine|es tut mir leid, aber|
            es tut mir leid, ich kann|tut mir leid, aber|tut mir leid, ich kann|leider kann ich|leider habe ich|
            leider weiß ich|leider bin ich|ich benötige mehr|ich brauche mehr|ich bräuchte|als ki|als eine ki|
            als sprachmodell|als ein sprachmodell|als künstliche intelligenz""",
        correction="""warte|warten sie|moment mal|einen moment|eigentlich|korrektur|ich habe mich geirrt|
            ich habe mich vertan|ich habe mich verrechnet|ich habe einen fehler gemacht|mein fehler|ich korrigiere|
            lass mich korrigieren|lassen sie mich korrigieren|lass mich das korrigieren|
            bei näherer betrachtung|bei genauerer betrachtung""",
        courtesy="""ich hoffe|hoffentlich hilft|wenn sie weitere|wenn du weitere|wenn sie noch|wenn du noch|
            wenn sie möchten|wenn du möchtest|falls sie weitere|falls du weitere|falls sie fragen|falls du fragen|
            falls sie noch|falls du noch|möchten sie|möchtest du|lass mich wissen|lassen sie mich wissen|
            lass es mich wissen|lassen sie es mich wissen|sag mir bescheid|sag bescheid|zögern sie nicht|zögere nicht|
            gerne|gern|natürlich|selbstverständlich|gute frage|sehr gute frage|tolle frage|großartige frage|hier ist|
            hier sind|vielen dank für|danke für|viel erfolg""",
        function_word="von|und|der|die|das",
        have="hat|haben|hatte",
        common="wie|was|welche|welcher|welches|wer|wann|wo|viele|viel|kostet|und|nicht|ist|im|es",
        decimal_comma=True,
    ),
    _language(
        "it",
        answer="risposta|risposte|soluzione|risultato",
        copula="""è|sono|era|erano|fu|furono|sarebbe|sarebbero|sarà|saranno|risulta|è di|è pari a|è uguale a|
            equivale a|deve essere|dovrebbe essere""",
        after="quindi|dunque|perciò|pertanto|allora|esattamente|precisamente|semplicemente",
        article="il|lo|la|i|gli|le|l'|un|uno|una|un'",
        preposition="""in|a|ad|il|nel|nello|nella|nell'|nei|negli|nelle|al|allo|alla|all'|ai|alle|su|sul|sulla|
            sull'""",
        yes="sì",
        no="no",
        conjunction="e|ed",
        alternative="o|od|oppure",
        condition="""ma|però|solo|soltanto|solamente|con|senza|tranne|salvo|eccetto|a meno che|a meno di|se|purché|
            a condizione|a patto|finché|fino a|fino al|quando|anche se|sebbene|tuttavia|a seconda|dipende|in caso di|
            dopo|prima di|sotto""",
        reason="""perché|perchè|poiché|poichè|siccome|dato che|visto che|in quanto|giacché|a causa di|grazie a|
            per esempio|ad esempio|cioè|ovvero|ossia|, che|, il che|, il quale|, la quale|, dove|, quindi""",
        # "mai" is May in French and German, "né" is "born" in French.
        negation="non|nessun|nessuno|nessuna|niente|nulla|neanche|nemmeno|neppure",
        months="""gennaio, febbraio|feb|febbr, marzo|mar, aprile|apr, maggio, giugno|giu, luglio|lug, agosto,
            settembre|sett, ottobre|ott, novembre|nov, dicembre|dic""",
        choice="opzione|lettera|scelta|alternativa|risposta|affermazione",
        correct="corretta|corretto|giusta|giusto|finale|definitiva|definitivo|esatta|esatto|vera|vero|migliore",
        scale="mila|mille 3, milione|milioni|mln 6, miliardo|miliardi|mld 9, mille miliardi 12",
        cannot="""non posso|non sono in grado|non sono sicuro|non sono sicura|non so|non lo so|non ho|non dispongo|
            non riesco|mi dispiace, ma|mi dispiace, non posso|mi dispiace, non so|mi dispiace, non ho|spiacente, ma|
            purtroppo non posso|purtroppo, non posso|purtroppo non ho|purtroppo, non ho|purtroppo non sono in grado|
            ho bisogno di più|ho bisogno di maggiori|avrei bisogno|mi servirebbe|mi servirebbero|come ia|
            come intelligenza artificiale|come modello linguistico|in quanto ia|in quanto modello""",
        correction="""aspetta|aspetti|in realtà|correzione|errata corrige|ho sbagliato|mi sono sbagliato|
            mi sono sbagliata|ho commesso un errore|ho fatto un errore|mi correggo|lasciami correggere|
            fammi correggere|ripensandoci|a ripensarci|scusa, ho sbagliato|anzi""",
        courtesy="""spero che|spero di|se hai altre|se ha altre|se hai domande|se ha domande|se hai bisogno|
            se ha bisogno|se vuoi, posso|vuoi che|fammi sapere|mi faccia sapere|non esitare|non esiti|certo|certamente|
            naturalmente|volentieri|con piacere|ottima domanda|bella domanda|buona domanda|ecco|grazie per""",
        function_word="di|del|della|dei|che|e",
        have="ha|hanno|aveva",
        common="quale|quanto|quanti|quante|quanta|come|chi|quando|dove|costa|di|del|della|che|per|c'è",
        decimal_comma=True,
    ),
    _language(
        "pt",
        answer="resposta|respostas|solução|resultado",
        copula="""é|são|foi|foram|era|eram|está|estão|estava|seria|seriam|será|serão|é de|é igual a|equivale a|
            deve ser|deveria ser""",
        after="portanto|então|exatamente|precisamente|simplesmente",
        article="o|a|os|as|um|uma|uns|umas",
        preposition="em|no|na|nos|nas|num|numa|a|à|às|ao|aos",
        yes="sim",
        no="não",
        conjunction="e",
        alternative="ou",
        condition="""mas|porém|só|somente|apenas|com|sem|exceto|salvo|a menos que|a não ser que|se|desde que|
            contanto que|caso|até|enquanto|quando|embora|no entanto|contudo|entretanto|dependendo|depende|sob|
            em caso de|após|depois de|antes de""",
        reason="""porque|pois|já que|uma vez que|visto que|dado que|devido a|devido ao|devido à|graças a|por exemplo|
            ou seja|isto é|por isso|, que|, o que|, o qual|, a qual|, onde|, portanto""",
        negation="não|nunca|jamais|nem|nenhum|nenhuma|nada|ninguém",
        months="""janeiro|jan, fevereiro|fev, março|mar, abril|abr, maio|mai, junho|jun, julho|jul, agosto, setembro,
            outubro, novembro|nov, dezembro|dez""",
        choice="opção|letra|alternativa|resposta|afirmação|afirmativa",
        correct="""correta|correto|correcta|correcto|certa|certo|final|definitiva|definitivo|exata|exato|verdadeira|
            verdadeiro|melhor""",
        scale="""mil 3, milhão|milhões 6, bilhão|bilhões|mil milhões 9, trilhão|trilhões|bilião|biliões 12""",
        cannot="""não posso|não consigo|não sou capaz|não sei|não tenho|não disponho|não estou certo|
            não estou certa|eu não posso|eu não consigo|eu não sei|eu não tenho|sinto muito, mas|desculpe, mas|
            desculpe, não posso|desculpe, não consigo|desculpe, não sei|lamento, mas|infelizmente, não posso|
            infelizmente não posso|infelizmente, não tenho|infelizmente não tenho|infelizmente, não consigo|
            infelizmente não consigo|infelizmente, eu não|preciso de mais|precisaria|como ia|como uma ia|
            como inteligência artificial|como modelo de linguagem|como um modelo de linguagem""",
        correction="""espere|espera|na verdade|correção|cometi um erro|errei|eu errei|me enganei|eu me enganei|
            enganei-me|deixe-me corrigir|deixa eu corrigir|permita-me corrigir|pensando bem|melhor dizendo|
            desculpe, errei""",
        courtesy="""espero que|espero ter|se tiver mais|se tiver alguma|se tiver dúvidas|se precisar de|
            se você tiver mais|se você tiver alguma|se você precisar|caso tenha|caso precise|gostaria que|quer que eu|
            me avise|avise-me|fique à vontade|sinta-se à vontade|não hesite|claro|com certeza|certamente|com prazer|
            ótima pergunta|boa pergunta|excelente pergunta|aqui está|aqui estão|obrigado por|obrigada por""",
        function_word="de|do|da|que|e",
        have="tem|têm|tinha",
        common="qual|quais|quanto|quantos|quantas|quem|quando|onde|custa|de|do|da|que|para|há",
        decimal_comma=True,
    ),
    _language(
        "nl",
        answer="antwoord|antwoorden|oplossing|resultaat|uitkomst|eindantwoord",
        copula="""is|zijn|was|waren|wordt|luidt|luiden|bedraagt|zou zijn|moet zijn|is gelijk aan""",
        after="dus|daarom|derhalve|dan|precies|exact",
        article="de|het|een|'t",
        preposition="in|op|om|te|aan|in de|in het|op de|op het",
        yes="ja|jazeker",
        no="nee|neen",
        conjunction="en",
        alternative="of",
        condition="""maar|alleen|slechts|enkel|met|zonder|behalve|uitgezonderd|tenzij|als|indien|mits|zolang|tot|
            totdat|wanneer|hoewel|echter|afhankelijk|onder|bij|na|voordat""",
        # "want" alone is a verb in English.
        reason="""omdat|aangezien|doordat|want de|want het|want er|want een|want hij|want ze|want dit|want als|
            vanwege|dankzij|bijvoorbeeld|bijv.|namelijk|dat wil zeggen|d.w.z.|oftewel|, wat|, die|, dat|, waarbij|
            , waar|, dus""",
        negation="niet|geen|nooit|niets|niemand|nergens",
        months="""januari|jan, februari|feb|febr, maart|mrt, april|apr, mei, juni|jun, juli|jul, augustus|aug,
            september|sep|sept, oktober|okt, november|nov, december|dec""",
        choice="optie|letter|keuze|antwoord|alternatief|antwoordoptie|stelling|bewering",
        correct="juiste|juist|correcte|correct|goede|definitieve|uiteindelijke|beste|exacte|ware",
        scale="duizend 3, miljoen|miljoenen|mln 6, miljard|miljarden|mld 9, biljoen|biljoenen 12",
        cannot="""ik kan niet|ik kan geen|ik kan dat niet|ik kan dit niet|ik kan het niet|ik kan deze vraag niet|
            ik kan de vraag niet|ik kan je niet|ik kan u niet|ik kan helaas|ik ben niet in staat|ik ben niet zeker|
            ik weet niet|ik weet het niet|ik weet dat niet|ik heb geen|ik heb niet|ik beschik niet|
            het spijt me, maar|het spijt mij, maar|het spijt me, ik kan|sorry, maar|sorry, ik kan|helaas kan ik|
            helaas heb ik|helaas weet ik|helaas ben ik|ik heb meer informatie nodig|als ai|als een ai|als taalmodel|
            als een taalmodel""",
        correction="""wacht|wacht even|eigenlijk|correctie|ik heb een fout gemaakt|ik maakte een fout|
            ik heb me vergist|ik vergiste me|mijn fout|laat me corrigeren|laat me dat corrigeren|bij nader inzien""",
        courtesy="""ik hoop dat|hopelijk helpt|laat het me weten|laat het mij weten|laat me weten|als je nog vragen|
            als u nog vragen|als je meer vragen|als u meer vragen|als je vragen|als u vragen|mocht je nog|mocht u nog|
            wil je dat|wilt u dat|aarzel niet|natuurlijk|uiteraard|graag gedaan|goede vraag|hier is|hier zijn|
            hier volgt|bedankt voor|veel succes""",
        function_word="van|en|die|dat",
        have="heeft|hebben|had",
        common="hoe|wat|welke|wie|wanneer|waar|veel|kost|van|voor|niet|er",
        decimal_comma=True,
    ),
    _language(
        "pl",
        answer="odpowiedź|odpowiedzi|odpowiedzią|wynik|wyniki|wynikiem",
        copula="""to|jest|są|był|była|było|były|będzie|wynosi|wynosiła|wynosił|brzmi|to jest|jest równy|jest równa|
            równa się|równy|równa""",
        after="więc|zatem|dlatego|czyli|tak więc|dokładnie",
        article="",
        preposition="w|we|na|o|dnia|o godzinie",
        yes="tak",
        no="nie",
        conjunction="i|oraz",
        alternative="lub|albo|czy|bądź",
        condition="""ale|lecz|tylko|jedynie|wyłącznie|z|ze|bez|oprócz|z wyjątkiem|poza|chyba że|jeśli|jeżeli|
            pod warunkiem|o ile|dopóki|do|aż|gdy|kiedy|chociaż|choć|jednak|jednakże|w zależności|zależy|po|przed|pod|
            w przypadku""",
        reason="""ponieważ|bo|gdyż|bowiem|dlatego że|jako że|z powodu|dzięki|na przykład|np.|to znaczy|tzn.|czyli|
            , który|, która|, które|, którzy|, co|, gdzie|, więc""",
        negation="nie|nigdy|ani|żaden|żadna|żadne|nikt|nic",
        months="""styczeń|stycznia|styczniu|sty, luty|lutego|lutym|lut, marzec|marca|marcu|mar, kwiecień|kwietnia|
            kwietniu|kwi, maj|maja|maju, czerwiec|czerwca|czerwcu|cze, lipiec|lipca|lipcu, sierpień|sierpnia|sierpniu,
            wrzesień|września|wrześniu|wrz, październik|października|październiku|paź, listopad|listopada|listopadzie,
            grudzień|grudnia|grudniu|gru""",
        choice="opcja|opcją|litera|literą|wariant|odpowiedź|odpowiedzią|stwierdzenie|zdanie",
        correct="""prawidłowa|prawidłową|prawidłowy|prawidłowym|poprawna|poprawną|poprawny|poprawnym|właściwa|
            właściwą|właściwy|ostateczna|ostateczną|ostateczny|ostatecznym|końcowa|końcową|końcowy|końcowym|dobra|
            dobrą|najlepsza|najlepszą|prawdziwa|prawdziwą""",
        scale="""tysiąc|tysiące|tysięcy|tysiąca|tys 3, milion|miliony|milionów|miliona|mln 6,
            miliard|miliardy|miliardów|miliarda|mld 9, bilion|biliony|bilionów|biliona 12""",
        cannot="""nie mogę|nie jestem w stanie|nie jestem pewien|nie jestem pewna|nie potrafię|nie wiem|nie mam|
            nie posiadam|nie dysponuję|nie znam|przykro mi, ale|przykro mi, nie mogę|przepraszam, ale|
            przepraszam, nie mogę|niestety nie mogę|niestety, nie mogę|niestety nie mam|niestety, nie mam|
            niestety nie jestem w stanie|niestety, nie jestem w stanie|niestety nie wiem|niestety, nie wiem|
            potrzebuję więcej|potrzebowałbym|potrzebowałabym|jako ai|jako model językowy|jako sztuczna inteligencja""",
        correction="""czekaj|zaczekaj|poczekaj|chwileczkę|właściwie|tak naprawdę|korekta|poprawka|sprostowanie|
            pomyliłem się|pomyliłam się|popełniłem błąd|popełniłam błąd|mój błąd|poprawiam|pozwól, że poprawię|
            po namyśle|po zastanowieniu""",
        courtesy="""mam nadzieję|jeśli masz jakieś|jeśli masz więcej|jeśli masz dodatkowe|jeśli masz pytania|
            jeśli potrzebujesz|jeżeli masz jakieś|jeżeli masz pytania|jeżeli potrzebujesz|w razie pytań|
            czy chciałbyś|czy chcesz, żebym|daj znać|daj mi znać|proszę dać znać|nie wahaj się|oczywiście|jasne|chętnie|
            z przyjemnością|dobre pytanie|świetne pytanie|oto|dziękuję za|powodzenia""",
        have="ma|mają",
        common="ile|jaki|jaka|jakie|kto|kiedy|gdzie|kosztuje|czy|się|jest|nie|od",
        decimal_comma=True,
    ),
    _language(
        "ru",
        answer="ответ|ответы|ответом|результат|результатом",
        copula="""это|есть|был|была|было|были|будет|будут|является|являются|равен|равна|равно|равны|составляет|
            составил|таков""",
        after="таким образом|значит|итак|следовательно|поэтому|ровно|именно",
        article="",
        preposition="в|во|на",
        yes="да",
        no="нет",
        conjunction="и|а также",
        alternative="или|либо",
        condition="""но|только|лишь|с|со|без|кроме|за исключением|если|при условии|при|пока|до|когда|хотя|однако|
            в зависимости|зависит|после|в случае|в том случае|под""",
        reason="""потому что|так как|т. к.|т.к.|ведь|поскольку|из-за|ибо|благодаря|например|то есть|т. е.|т.е.|
            , который|, которая|, которое|, которые|, что|, где|, поэтому|, а именно""",
        negation="не|нет|никогда|ни|никакой|никакая|никакие|никто|ничто|ничего|нельзя",
        months="""январь|января|январе|янв, февраль|февраля|феврале|фев|февр, март|марта|марте|мар,
            апрель|апреля|апреле|апр, май|мая|мае, июнь|июня|июне|июн, июль|июля|июле|июл, август|августа|августе|авг,
            сентябрь|сентября|сентябре|сен|сент, октябрь|октября|октябре|окт, ноябрь|ноября|ноябре|ноя|нояб,
            декабрь|декабря|декабре|дек""",
        choice="вариант|варианта|вариантом|вариант ответа|буква|буквой|пункт|ответ|утверждение|под буквой",
        letters="АБВГДЕЖЗИК",
        correct="""правильный|правильным|правильные|верный|верным|верные|итоговый|итоговым|окончательный|
            окончательным|конечный|конечным|точный|точным|лучший|лучшим""",
        scale="""тысяча|тысячи|тысяч|тыс 3, миллион|миллиона|миллионов|млн 6, миллиард|миллиарда|миллиардов|млрд 9,
            триллион|триллиона|триллионов|трлн 12""",
        cannot="""я не могу|я не знаю|я не имею|я не располагаю|я не уверен|я не уверена|я не в состоянии|
            я не способен|не могу|не знаю|у меня нет|мне не хватает|мне нужно больше|мне нужна дополнительная|
            мне потребуется|к сожалению, я|к сожалению, у меня|извините, но|извините, я не|простите, но|
            простите, я не|прошу прощения, но|как ии|как языковая модель|как искусственный интеллект""",
        correction="""подождите|подожди|постойте|постой|стоп|на самом деле|исправление|поправка|я ошибся|
            я ошиблась|я допустил ошибку|я допустила ошибку|допустил ошибку|моя ошибка|поправлюсь|исправлюсь|
            позвольте исправить|позвольте поправить|вернее|точнее|если подумать""",
        courtesy="""надеюсь|если у вас есть|если у вас остались|если у вас возникнут|если у тебя есть|
            если у тебя остались|если вам нужна|если вам нужно|если нужна|если возникнут|хотите, чтобы я|хотите, я|
            дайте знать|дай знать|сообщите мне|обращайтесь|не стесняйтесь|конечно|разумеется|с удовольствием|
            хороший вопрос|отличный вопрос|вот|рад помочь|рада помочь|буду рад|спасибо за|удачи""",
        have="имеет|—|–",
        decimal_comma=True,
    ),
    _language(
        "tr",
        answer="cevap|cevabı|cevabım|cevabınız|cevaplar|yanıt|yanıtı|yanıtım|sonuç|sonucu",
        copula="ise|şudur|şöyledir|eşittir",
        after="""'dır|'dir|'dur|'dür|'tır|'tir|'tur|'tür|'ydı|'ydi|'ydu|'ydü|'dı|'di|'du|'dü|'tı|'ti|'tu|'tü|
            'da|'de|'ta|'te|'dadır|'dedir|'tadır|'tedir|'e eşittir|'a eşittir|'ye eşittir|'ya eşittir|olur|olacaktır|
            olmalıdır|olarak bulunur|dolayısıyla|yani|öyleyse|tam olarak""",
        article="",
        preposition="saat",
        yes="evet",
        no="hayır",
        conjunction="ve|ile",
        alternative="veya|ya da|yahut",
        condition="""ama|fakat|ancak|yalnızca|yalnız|sadece|hariç|dışında|sürece|eğer|şartıyla|koşuluyla|kadar|
            olmadan|olmadıkça|halinde|hâlinde|durumunda|takdirde|ise|rağmen|sonra|önce|ile|bağlı""",
        reason="çünkü|zira|örneğin|mesela|yani|bu yüzden|bu nedenle|dolayısıyla|nedeni|sebebi",
        negation="değil|değildir|asla|hiç|hiçbir|hiçbiri|yok|yoktur",
        months="""ocak, şubat|şub, mart|mar, nisan, mayıs, haziran, temmuz, ağustos|ağu, eylül|eyl, ekim, kasım,
            aralık""",
        choice="şık|şıkkı|seçenek|seçeneği|harf|harfi|cevap|yanıt|ifade",
        correct="doğru|nihai|kesin|son|en doğru|en iyi|en uygun",
        scale="bin 3, milyon|mn 6, milyar 9, trilyon 12",
        cannot="""bilmiyorum|emin değilim|bu soruyu yanıtlayamıyorum|bu soruyu yanıtlayamam|
            bu soruyu cevaplayamıyorum|bu soruyu cevaplayamam|bu soruya cevap veremiyorum|bu soruya cevap veremem|
            bu soruya yanıt veremiyorum|bu soruya yanıt veremem|bu konuda yardımcı olamam|bu konuda bilgim yok|
            yeterli bilgim yok|yeterli bilgiye sahip değilim|daha fazla bilgiye ihtiyacım|üzgünüm, ancak|
            üzgünüm, ama|üzgünüm, bu soru|üzgünüm ancak|üzgünüm ama|maalesef bu soruyu|maalesef bu soruya|
            ne yazık ki bu soruyu|ne yazık ki bu soruya|bir yapay zeka olarak|bir yapay zekâ olarak|
            yapay zeka olarak|bir dil modeli olarak|bir yapay zeka modeli olarak""",
        correction="""bekle|bekleyin|aslında|düzeltme|hata yaptım|bir hata yaptım|yanlış hesapladım|yanıldım|
            yanılmışım|düzeltiyorum|düzelteyim|benim hatam|tekrar düşününce|daha doğrusu""",
        courtesy="""umarım|başka sorunuz|başka bir sorunuz|başka sorularınız|başka sorun varsa|başka bir sorun varsa|
            eğer başka|sormaktan çekinmeyin|lütfen sormaktan|çekinmeden|yardımcı olabileceğim|ister misiniz|
            daha fazla yardıma|elbette|tabii|tabii ki|tabi ki|memnuniyetle|harika bir soru|güzel soru|güzel bir soru|
            iyi bir soru|işte""",
        common="kaç|ne|hangi|hangisi|kim|nerede|nedir|mi|mı|mu|mü|bir|ve",
        decimal_comma=True,
    ),
    _language(
        "ar",
        answer="الإجابة|الاجابة|إجابة|إجابتي|الجواب|جواب|جوابي|النتيجة|الناتج",
        copula="هو|هي|هما|كان|كانت|يكون|تكون|سيكون|ستكون|يساوي|تساوي",
        after="إذن|إذًا|بالتالي|وبالتالي|لذلك|بالضبط",
        article="",
        preposition="في|على|عند|في يوم|في عام|في سنة",
        yes="نعم|بلى",
        no="لا",
        conjunction="و",
        alternative="أو|أم",
        condition="""لكن|ولكن|فقط|إلا|باستثناء|ما عدا|ما لم|إذا|بشرط|شريطة|طالما|حتى|مع|بدون|دون|من دون|عندما|رغم|
            على الرغم|بعد|قبل|في حالة|في حال|حسب|بحسب|عند|ضمن""",
        reason="""لأن|لأنه|لأنها|لأنهم|لأننا|لأنك|بسبب|نظرا|نظرًا|حيث|وذلك|إذ|بما أن|على سبيل المثال|مثلا|مثلًا|
            ، الذي|، التي|، وهو|، وهي|، لذلك""",
        negation="لا|ليس|ليست|ليسوا|لم|لن|غير|أبدا|أبدًا|لا شيء|لا أحد",
        months="""يناير|كانون الثاني, فبراير|شباط, مارس|آذار, أبريل|إبريل|ابريل|نيسان, مايو|أيار, يونيو|يونيه|حزيران,
            يوليو|يوليه|تموز, أغسطس|اغسطس|آب, سبتمبر|أيلول, أكتوبر|اكتوبر|تشرين الأول, نوفمبر|تشرين الثاني,
            ديسمبر|كانون الأول""",
        choice="الخيار|خيار|الاختيار|الحرف|حرف|الإجابة|العبارة|البديل",
        letters="أبجدهوزحطي",
        correct="الصحيحة|الصحيح|صحيحة|النهائية|النهائي|الأصح|الصائبة|الصواب|الأفضل|الدقيقة|الأدق",
        scale="""ألف|آلاف|ألفا|ألفًا 3, مليون|ملايين|مليونا|مليونًا 6, مليار|مليارات|مليارا|مليارًا|بليون 9,
            تريليون|تريليونات|ترليون 12""",
        cannot="""لا أستطيع|لا يمكنني|لا أعرف|لا أعلم|لا أدري|لا أملك|ليس لدي|ليست لدي|لست متأكدا|لست متأكدًا|
            لست قادرا|لست قادرًا|أنا غير قادر|أنا آسف، لكن|أنا آسف، ولكن|آسف، لكن|آسف، ولكن|آسف، لا أستطيع|
            آسف، لا يمكنني|أعتذر، لكن|أعتذر، ولكن|عذرا، لكن|عذرًا، لكن|عذرًا، ولكن|عذرا، لا يمكنني|
            عذرًا، لا يمكنني|عذرا، لا أستطيع|عذرًا، لا أستطيع|للأسف، لا يمكنني|للأسف لا يمكنني|
            للأسف، لا أستطيع|للأسف لا أستطيع|للأسف، ليس لدي|للأسف ليس لدي|أحتاج إلى مزيد|أحتاج إلى المزيد|
            أحتاج إلى معلومات|كنموذج لغوي|بصفتي نموذج|بصفتي نموذجا|بصفتي نموذجًا|بصفتي ذكاء""",
        correction="""انتظر|مهلا|مهلًا|في الواقع|في الحقيقة|تصحيح|أخطأت|لقد أخطأت|ارتكبت خطأ|لقد ارتكبت خطأ|
            دعني أصحح|دعوني أصحح|دعني أعيد|اسمح لي أن أصحح""",
        courtesy="""آمل أن|أتمنى أن|أرجو أن|إذا كان لديك|إذا كانت لديك|إذا كنت بحاجة|إذا احتجت|هل تريد مني|
            هل ترغب في|لا تتردد|لا تترددي|أخبرني إذا|بالطبع|بالتأكيد|طبعا|طبعًا|بكل سرور|سؤال جيد|سؤال رائع|
            سؤال ممتاز|إليك|إليكم|شكرا على|شكرًا على|شكرا لسؤالك|شكرًا لسؤالك|يسعدني""",
    ),
    _language(
        "hi",
        answer="उत्तर|जवाब|परिणाम|नतीजा",
        copula="है|हैं|था|थी|थे|होगा|होगी|होंगे|होता है",
        after="""है|हैं|था|थी|थे|होगा|होगी|होंगे|होता है|होती है|हुआ था|हुई थी|के बराबर है|में|पर|को|इसलिए|अतः|
            ठीक""",
        article="",
        preposition="",
        yes="हाँ|हां|जी हाँ|जी हां",
        no="नहीं|जी नहीं|नही",
        conjunction="और|तथा|एवं",
        alternative="या|अथवा",
        condition="""लेकिन|परंतु|परन्तु|किंतु|किन्तु|मगर|केवल|सिर्फ|सिर्फ़|के साथ|के बिना|बिना|को छोड़कर|के अलावा|
            के सिवा|सिवाय|जब तक|यदि|अगर|बशर्ते|तक|जब|हालाँकि|हालांकि|शर्त|के बाद|से पहले|निर्भर|पर निर्भर""",
        reason="क्योंकि|चूँकि|चूंकि|इसलिए|उदाहरण के लिए|यानी|अर्थात|अर्थात्|कारण यह|, जो|, जिसका|, जिससे|, जहाँ|, जहां",
        negation="नहीं|नही|न तो|कभी नहीं|कोई नहीं|कुछ नहीं",
        months="""जनवरी, फरवरी|फ़रवरी, मार्च, अप्रैल, मई, जून, जुलाई, अगस्त, सितंबर|सितम्बर, अक्टूबर|अक्तूबर,
            नवंबर|नवम्बर, दिसंबर|दिसम्बर""",
        choice="विकल्प|अक्षर|उत्तर|कथन",
        letters="कखगघङ",
        correct="सही|अंतिम|अन्तिम|सटीक|सर्वोत्तम|सबसे सही|सबसे उपयुक्त",
        scale="""हज़ार|हजार 3, लाख 5, मिलियन 6, करोड़ 7, अरब|बिलियन 9, खरब 11, ट्रिलियन 12""",
        cannot="""मुझे नहीं पता|मुझे पता नहीं|मुझे नहीं मालूम|मैं नहीं जानता|मैं नहीं जानती|मैं नहीं बता सकता|
            मैं यह नहीं बता सकता|मैं इस प्रश्न का उत्तर नहीं|मैं इस सवाल का जवाब नहीं|मैं इसका उत्तर नहीं|
            मैं इसका जवाब नहीं|मैं असमर्थ|मैं निश्चित नहीं|मेरे पास पर्याप्त|मेरे पास इसकी जानकारी नहीं|
            मेरे पास इस बारे में|मेरे पास यह जानकारी नहीं|मुझे खेद है, लेकिन|मुझे खेद है, मैं|मुझे खेद है कि मैं|
            क्षमा करें, लेकिन|क्षमा करें, मैं|माफ़ करें, मैं|माफ करें, मैं|माफ़ कीजिए, मैं|माफ कीजिए, मैं|
            दुर्भाग्य से, मैं|दुर्भाग्य से, मेरे पास|मुझे और जानकारी|मुझे अधिक जानकारी|एक एआई|एक ai|
            एक भाषा मॉडल""",
        correction="""रुकिए|रुको|रुकें|वास्तव में|दरअसल|असल में|मुझसे गलती हुई|मुझसे गलती हो गई|मुझसे ग़लती हुई|
            मैंने गलती की|मैंने गलती कर दी|मेरी गलती|मैं गलत था|मैं सुधार करता|मैं इसे सुधारता|फिर से सोचने पर""",
        courtesy="""आशा है|मुझे आशा है|मुझे उम्मीद है|उम्मीद है|यदि आपके कोई|अगर आपके कोई|यदि आपके पास कोई|
            अगर आपके पास कोई|यदि आपको कोई|अगर आपको कोई|यदि आपको और|अगर आपको और|क्या आप चाहेंगे|क्या आप चाहते हैं|
            कृपया बताएं|कृपया मुझे बताएं|बेझिझक|ज़रूर|जरूर|बेशक|निश्चित रूप से|अच्छा प्रश्न|अच्छा सवाल|
            बहुत अच्छा प्रश्न|बहुत अच्छा सवाल|यहाँ आपका|यहाँ आपके|यहां आपका|यहां आपके""",
    ),
    _language(
        "zh",
        answer="答案|正解|答|结果|結果",
        copula="""是|为|為|等于|等於|即|就是|即为|即為|即是|应为|應為|应是|應是|应该是|應該是|应当是|應當是|会是|
            會是""",
        after="因此|所以|正好是|恰好是",
        article="",
        preposition="在|于|於",
        yes="是|是的|对|對|对的|對的|没错|沒錯",
        no="不|不是|不是的|否|不对|不對",
        conjunction="和|与|與|以及",
        alternative="或|或者|或是",
        condition="""但|但是|不过|不過|只有|仅|僅|只能|只要|只在|除了|除非|除外|如果|若|假如|前提|直到|虽然|雖然|然而|
            取决于|取決於|视情况|視情況|需要|必须|必須|之后|之後|之前|情况下|情況下""",
        reason="""因为|因為|由于|由於|所以|因此|例如|比如|也就是说|也就是說|换句话说|換句話說|原因是|理由是""",
        negation="不|没有|沒有|没|沒|并非|並非|从未|從未|绝非|絕非|无法|無法",
        months="""一月|1月, 二月|2月, 三月|3月, 四月|4月, 五月|5月, 六月|6月, 七月|7月, 八月|8月, 九月|9月,
            十月|10月, 十一月|11月, 十二月|12月""",
        choice="选项|選項|选择|選擇|字母|答案|选|選",
        correct="""正确|正確|正确的|正確的|最终|最終|最终的|最終的|最后|最後|标准|標準|最佳|准确|準確""",
        scale="""千 3, 万|萬 4, 十万|十萬 5, 百万|百萬 6, 千万|千萬 7, 亿|億 8, 十亿|十億 9, 百亿|百億 10,
            千亿|千億 11, 万亿|萬億|兆 12""",
        cannot="""我无法|我無法|我不能|我不知道|我不清楚|我不确定|我不確定|我没有|我沒有|抱歉，我无法|抱歉，我無法|
            抱歉，我不|抱歉，我没有|抱歉，我沒有|抱歉，但|很抱歉，我无法|很抱歉，我無法|很抱歉，我不|很抱歉，我没有|
            很抱歉，我沒有|很抱歉，但|对不起，我无法|對不起，我無法|对不起，我不|對不起，我不|对不起，但|對不起，但|
            遗憾的是，我|遺憾的是，我|我需要更多|作为ai|作为一个ai|作为一名ai|作为人工智能|作为一个人工智能|
            作为语言模型|作为一个语言模型|作為ai|作為一個ai|作為人工智慧|作為語言模型|作為一個語言模型""",
        correction="""等等|等一下|实际上|實際上|其实|其實|更正|纠正|糾正|我犯了|我算错|我算錯|我弄错|我弄錯|
            我搞错|我搞錯|我错了|我錯了|我说错|我說錯|抱歉，我算错|抱歉，我算錯|让我重新|讓我重新|让我更正|
            讓我更正|不对，让我|不对，我|不對，讓我|不對，我|仔细想想|仔細想想|重新计算|重新計算""",
        courtesy="""希望这|希望這|希望对|希望對|希望以上|如果你有任何|如果您有任何|如果你有其他|如果您有其他|
            如果你还有|如果您还有|如果你還有|如果您還有|如果还有|如果還有|如果你需要|如果您需要|如有任何|如有其他|
            如有疑问|如有疑問|需要我|请告诉我|請告訴我|请随时|請隨時|欢迎随时|歡迎隨時|当然|當然|好的|没问题|
            沒問題|好问题|好問題|这是一个好问题|這是一個好問題|很高兴|很高興|不客气|不客氣|以下是|这里是|這裡是|
            祝你|祝您""",
    ),
    _language(
        "ja",
        answer="答え|答|解答|回答|正答|正解|結果",
        copula="は|が",
        after="""です|ですね|でした|だ|だった|である|であった|になります|となります|になる|となる|になりました|
            ということです|ということになります|にあります|にある|したがって|ちょうど""",
        article="",
        preposition="",
        yes="はい|ええ|うん",
        no="いいえ|いえ|いや|ううん",
        conjunction="と|および|及び|ならびに|並びに",
        alternative="または|又は|あるいは|もしくは",
        condition="""しかし|ただし|だけ|のみ|限り|に限|場合|ならば|なら|除いて|除き|以外|条件|まで|とき|もし|ものの|
            けれど|けど|必要|次第|によって|により|なしで|なしに|ですが""",
        # "ので" and "から" end a reason.
        reason="なぜなら|なぜならば|というのも|というのは|その理由は|理由は|理由として|例えば|たとえば|つまり|すなわち",
        negation="""ではない|ではありません|じゃない|じゃありません|でない|ません|なかった|しない|できない|いない|
            決して|けっして""",
        months="""1月|一月, 2月|二月, 3月|三月, 4月|四月, 5月|五月, 6月|六月, 7月|七月, 8月|八月, 9月|九月, 10月|十月,
            11月|十一月, 12月|十二月""",
        choice="選択肢|記号|選択|文字|答え|番号",
        letters="アイウエオカキクケコ",
        correct="正しい|正確な|最終|最終的な|最も適切な|最適な|最も近い",
        scale="""千 3, 万 4, 十万 5, 百万 6, 千万 7, 億 8, 十億 9, 百億 10, 千億 11, 兆 12""",
        cannot="""申し訳ありませんが|申し訳ございませんが|申し訳ないですが|すみませんが|すみません、わかりません|
            すみません、分かりません|残念ながら、私|残念ながら私|わかりません|分かりません|私にはわかりません|
            私には分かりません|私は知りません|知りません|お答えできません|お答えすることができません|
            お答えすることはできません|答えられません|答えることができません|回答できません|もっと情報が必要です|
            より多くの情報が必要です|aiとして|aiである私|私はaiなので|私はaiであるため|言語モデルとして""",
        correction="""待って|ちょっと待って|お待ちください|実際には|実は|訂正|修正|間違えました|間違いました|
            間違えて|計算を間違え|計算ミス|計算間違い|私の間違い|失礼しました|よく考えると|
            考え直すと|もう一度計算""",
        courtesy="""お役に立て|ご参考になれば|参考になれば|ご不明な点|ご質問があれば|ご質問がございましたら|
            他に質問|他にご質問|ほかにご質問|何か質問|何かご質問|何かご不明|さらに詳しい|お気軽に|もちろん|
            はい、もちろん|承知しました|承知いたしました|かしこまりました|わかりました|分かりました|良い質問|
            いい質問|素晴らしい質問|以下は|以下に|以下が|こちらが|こちらは|喜んで""",
    ),
    _language(
        "ko",
        answer="정답|해답|답안|답변|답|결과",
        copula="은|는|이|가",
        after="""입니다|이다|이에요|예요|이었습니다|였습니다|이었다|였다|이 됩니다|가 됩니다|이 된다|가 된다|
            에 있습니다|에 있다|에 있어요|에|따라서|그러므로|정확히""",
        article="",
        preposition="",
        yes="네|예|네네|그렇습니다|그래요|맞습니다|맞아요",
        no="아니요|아니오|아뇨|아니|아닙니다|아니에요",
        conjunction="와|과|및|그리고",
        alternative="또는|혹은|아니면",
        condition="""하지만|그러나|다만|단,|오직|경우|조건|제외|외에|않는 한|없는 한|없이|때까지|까지|만약|만일|비록|
            지만|필요|에 따라|때만|한해|한하여|전에|후에|함께""",
        # "때문" ends a reason.
        reason="왜냐하면|왜냐면|그 이유는|이유는|예를 들어|예를 들면|다시 말해|그래서|따라서|그러므로",
        negation="""아닙니다|아니다|아니라|아니에요|아닌|않습니다|않는다|않다|않아요|않은|없습니다|없다|없어요|없는|
            못합니다|못한다|못하는|절대""",
        months="1월, 2월, 3월, 4월, 5월, 6월, 7월, 8월, 9월, 10월, 11월, 12월",
        choice="보기|선택지|선지|번|항목|답|정답|문자",
        letters="가나다라마바사아자차",
        correct="최종|최종적인|올바른|맞는|정확한|옳은|가장 적절한|가장 알맞은",
        scale="""천 3, 만 4, 십만 5, 백만 6, 천만 7, 억 8, 십억 9, 백억 10, 천억 11, 조 12""",
        cannot="""죄송하지만|죄송합니다만|죄송합니다, 저는|죄송합니다, 하지만|미안하지만|유감스럽지만|
            유감스럽게도 저는|안타깝지만|안타깝게도 저는|저는 알 수 없|저는 답할 수 없|저는 대답할 수 없|
            저는 답변할 수 없|저는 모릅니다|모르겠습니다|잘 모르겠습니다|모릅니다|알 수 없습니다|
            답변할 수 없습니다|답변드릴 수 없습니다|대답할 수 없습니다|더 많은 정보가 필요|추가 정보가 필요|
            ai로서|저는 ai로서|ai 언어 모델로서|인공지능으로서|언어 모델로서""",
        correction="""잠깐|잠깐만|잠시만|아, 잠깐|사실은|실제로는|정정|수정합니다|수정하겠습니다|실수했습니다|
            제가 실수|제가 틀렸|제가 잘못|계산을 잘못|다시 계산|다시 생각해|다시 확인해""",
        courtesy="""도움이 되|도움이 필요하시면|궁금한 점이|궁금한 것이|궁금하신|더 궁금한|추가 질문|
            추가로 궁금|질문이 있으시면|다른 질문이|더 필요한|언제든지 말씀|언제든지 문의|언제든지 질문|
            언제든지 물어|언제든 말씀|언제든 물어|물론입니다|물론이죠|물론|네, 물론|좋은 질문|훌륭한 질문|
            알겠습니다|다음은|아래는|여기 있습니다|기꺼이""",
    ),
    _language(
        "sv",
        answer="svar|svaret|svaren|lösning|lösningen|resultat|resultatet|slutsvar|slutsvaret",
        copula="är|var|blir|blev|vore|lyder|skulle vara|måste vara|bör vara|borde vara|är lika med",
        after="alltså|således|därför|därmed|då|exakt|precis",
        article="en|ett|den|det|de",
        preposition="i|på|den|vid|klockan|kl|kl.",
        yes="ja|jo|japp|javisst",
        no="nej|nä",
        conjunction="och|samt",
        alternative="eller",
        condition="""men|bara|endast|enbart|med|utan|utom|förutom|om|om inte|såvida|förutsatt|under förutsättning|
            så länge|tills|när|även om|trots|dock|beroende|beror|under|efter|före|innan|i fall|ifall|vid""",
        reason="""eftersom|därför att|för att|på grund av|tack vare|till exempel|t.ex.|t. ex.|det vill säga|dvs|
            nämligen|, vilket|, som|, där|, så""",
        negation="inte|ej|icke|aldrig|varken|ingen|inget|inga|ingenting",
        months="""januari|jan, februari|feb, mars|mar, april|apr, maj, juni|jun, juli|jul, augusti|aug,
            september|sep|sept, oktober|okt, november|nov, december|dec""",
        choice="alternativ|alternativet|svarsalternativ|bokstav|bokstaven|val|svar|påstående",
        correct="""rätt|rätta|korrekt|korrekta|riktiga|slutlig|slutliga|slutligt|slutgiltiga|slutgiltigt|bästa|
            exakta|sanna""",
        scale="tusen 3, miljon|miljoner|mn 6, miljard|miljarder|mdr 9, biljon|biljoner 12",
        cannot="""jag kan inte|jag kan tyvärr|jag vet inte|jag vet tyvärr|jag har inte|jag har ingen|jag har inga|
            jag har tyvärr|jag är inte säker|jag är ledsen, men|jag beklagar, men|beklagar, men|förlåt, men|
            ursäkta, men|tyvärr kan jag|tyvärr har jag|tyvärr vet jag|jag behöver mer|jag skulle behöva|som ai|
            som en ai|som språkmodell|som en språkmodell|som artificiell intelligens""",
        correction="""vänta|egentligen|rättelse|korrigering|jag gjorde ett misstag|jag gjorde fel|jag hade fel|
            jag räknade fel|mitt misstag|låt mig rätta|låt mig korrigera|vid närmare eftertanke|nej, vänta""",
        courtesy="""jag hoppas|hoppas det|hoppas detta|om du har fler|om du har några|om du behöver mer|
            om du behöver hjälp|vill du att jag|hör av dig|låt mig veta|säg till|tveka inte|självklart|naturligtvis|
            gärna|bra fråga|utmärkt fråga|här är|här kommer|tack för|lycka till""",
        function_word="av|och|som",
        have="har|hade",
        common="hur|vad|vilken|vilket|vem|när|var|många|mycket|kostar|och|inte|av",
        decimal_comma=True,
    ),
)
"""The languages that are known."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, which spaces separate."""
    return frozenset(text.split())


def is_unspaced(character: str) -> bool:
    """Return whether a character is of a script without spaces between words, or with
    particles at their end.
    """
    return "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"


@cache
def words(field: str) -> tuple[str, ...]:
    """Return the words that all languages have in a field of words, longest first."""
    union: set[str] = set()
    for language in LANGUAGES:
        union.update(getattr(language, field))
    return tuple(sorted(union, key=lambda word: (-len(word), word)))


def either(words: Iterable[str]) -> str:
    """Return a pattern of any of these words."""
    return "|".join(map(re.escape, words))


def word_patterns(words: Iterable[str]) -> tuple[str, str]:
    """Return a pattern of the words that spaces separate, and one of all others."""
    spaced: list[str] = []
    unspaced: list[str] = []
    for word in words:
        (unspaced if is_unspaced(word[0]) else spaced).append(word)
    return either(spaced), either(unspaced)


@cache
def words_pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of whole words; a word of a script without spaces may stand
    anywhere.
    """
    spaced, unspaced = word_patterns(words)
    if spaced:
        spaced = rf"(?<!\w)(?:{spaced})(?!\w)"
    return re.compile("|".join(filter(None, (spaced, unspaced))), re.IGNORECASE)


def _month_numbers() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for language in LANGUAGES:
        for number, names in enumerate(language.months, start=1):
            numbers.update(dict.fromkeys(names, number))
    return numbers


def _scales() -> dict[str, int]:
    scales: dict[str, int] = {}
    for language in LANGUAGES:
        for name, power in language.scale:
            scales.setdefault(name, power)  # "billion" is the English one
    return dict(sorted(scales.items(), key=lambda entry: -len(entry[0])))


MONTHS: Final = _month_numbers()
"""The name of a month in any language -> its number."""
SCALES: Final = _scales()
"""A multiplier in any language -> its power of ten, the longest first."""

_SCRIPTS: Final = (
    ("ja", "[\u3040-\u30ff]"),
    ("ko", "[\uac00-\ud7a3]"),
    ("zh", "[\u4e00-\u9fff]"),  # behind Japanese, which has these signs, too
    ("ru", "[\u0400-\u04ff]"),
    ("ar", "[\u0600-\u06ff]"),
    ("hi", "[\u0900-\u097f]"),
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}(?:'[^\W\d_]*)?")
_BY_CODE: Final = {language.code: language for language in LANGUAGES}
_TELLING: Final = (
    "answer",
    "copula",
    "article",
    "preposition",
    "conjunction",
    "negation",
    "yes",
    "no",
    "after",
    "reason",
    "common",
)


@lru_cache(maxsize=512)
def language_of(text: str) -> Language:
    """Return the language that a text seems to be in; English if nothing tells."""
    for code, script in _SCRIPTS:
        if re.search(script, text):
            return _BY_CODE[code]
    text_words = set(_WORD.findall(text[:400].lower()))
    counts = {
        code: len(text_words & telling) for code, telling in _telling_words().items()
    }
    # Of equal counts the first one wins, which is that of English.
    return _BY_CODE[max(counts, key=counts.__getitem__)]


@cache
def _telling_words() -> dict[str, frozenset[str]]:
    telling: dict[str, frozenset[str]] = {}
    for language in LANGUAGES:
        if language.common:
            fields = [getattr(language, field) for field in _TELLING]
            telling[language.code] = frozenset(chain(*fields))
    return telling
